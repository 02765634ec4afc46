package server

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// summary sends the whole summary or, if the request has one only_cpu_and_memory=true, the part
// for the metrics server. As in the kubelet, POST with a form is allowed.
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

// writeJSON encodes a value completely before it sends it, so that an encoding error can still be
// a 500.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // an error means that the client has gone
}

// metricRoutes returns the gatherers at their paths. They count as expensive, since a scrape may
// call the runtime and read many cgroups.
func (s *Server) metricRoutes() []route {
	serve := func(g prometheus.Gatherer) http.HandlerFunc {
		// One broken collector must not hide the values of all others.
		return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP
	}
	rs := []route{}
	// A configured gatherer for this path replaces the built-in one.
	if _, ok := s.cfg.Gatherers["/metrics/slis"]; !ok {
		rs = append(rs, route{pattern: "/metrics/slis", methods: get, basic: true, serve: serve(s.slis.reg)})
	}
	for path, g := range s.cfg.Gatherers {
		rs = append(rs, route{pattern: path, methods: get, basic: true, heavy: true, serve: serve(g)})
	}
	return rs
}
