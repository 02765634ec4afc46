package server

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// summary returns the whole summary or, with only_cpu_and_memory=true given once,
// the part for the metrics server. POST with a form is allowed, as in the kubelet.
func (s *Server) summary(w http.ResponseWriter, r *http.Request) {
	// The parameter may be in the query or in the body.
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	v := r.Form["only_cpu_and_memory"]
	sum, err := s.cfg.Stats.Summary(r.Context(), len(v) == 1 && v[0] == "true")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, sum)
}

// writeJSON writes a value as a whole, so that an error of encoding can still be a 500.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // an error means that the client has gone
}

// metricRoutes are the gatherers at their paths. They are heavy: a scrape may call
// the runtime and walk through cgroups.
func (s *Server) metricRoutes() []route {
	serve := func(g prometheus.Gatherer) http.HandlerFunc {
		// One broken collector must not hide the values of all others.
		return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP
	}
	rs := []route{}
	// A gatherer of that path takes the place of our own.
	if _, ok := s.cfg.Gatherers["/metrics/slis"]; !ok {
		rs = append(rs, route{pattern: "/metrics/slis", methods: get, basic: true, serve: serve(s.slis.reg)})
	}
	for path, g := range s.cfg.Gatherers {
		rs = append(rs, route{pattern: path, methods: get, basic: true, heavy: true, serve: serve(g)})
	}
	return rs
}
