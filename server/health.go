package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// checks returns all health checks. "ping" always passes.
func (s *Server) checks() []Check {
	ping := Check{Name: "ping", Check: func(*http.Request) error { return nil }}
	// This check always passes, since zap does not return errors of writing. It exists because
	// the kubelet has a check with this name.
	log := Check{Name: "log", Check: func(*http.Request) error { return nil }}
	out := []Check{ping}
	// A check of the program with the same name replaces it.
	if !slices.ContainsFunc(s.cfg.Health, func(c Check) bool { return c.Name == "log" }) {
		out = append(out, log)
	}
	for _, c := range s.cfg.Health {
		// "ping" cannot be replaced.
		if c.Name != "ping" {
			out = append(out, c)
		}
	}
	return out
}

// healthRoutes returns /healthz with one path for each check, /livez and /readyz. All three have
// all checks, since a node agent does not start up in phases.
func (s *Server) healthRoutes() []route {
	all := s.checks()
	rs := []route{
		{pattern: "/healthz", methods: get, basic: true, health: true, serve: s.healthz("healthz", all)},
		{pattern: "/livez", methods: get, serve: s.healthz("livez", all)},
		{pattern: "/readyz", methods: get, serve: s.healthz("readyz", all)},
	}
	for _, c := range all {
		rs = append(rs, route{pattern: "/healthz/" + c.Name, methods: get, basic: true, serve: s.healthz("healthz", []Check{c})})
	}
	return rs
}

// healthz answers "ok", or the list of checks and their results. The reason of a failure is only
// logged.
func (s *Server) healthz(name string, checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Always built, since it is known only at the end whether the list is needed.
		var list strings.Builder
		var failed []string
		for _, c := range checks {
			// An excluded check is not called at all, since it may hang.
			if slices.Contains(r.URL.Query()["exclude"], c.Name) {
				fmt.Fprintf(&list, "[+]%s excluded: ok\n", c.Name)
				continue
			}
			// Checks run one after the other, within the deadline of the request.
			err := c.Check(r)
			s.slis.saw(c.Name, name, err)
			if err == nil {
				fmt.Fprintf(&list, "[+]%s ok\n", c.Name)
				continue
			}
			failed = append(failed, c.Name)
			fmt.Fprintf(&list, "[-]%s failed: reason withheld\n", c.Name)
			s.cfg.Log.Info("health check failed", zap.String("check", c.Name), zap.Error(err))
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		// A browser must not interpret the name of a check.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch _, verbose := r.URL.Query()["verbose"]; {
		// A failure always returns the list.
		case len(failed) > 0:
			http.Error(w, list.String()+name+" check failed", http.StatusInternalServerError)
		case verbose:
			fmt.Fprintf(w, "%s%s check passed\n", list.String(), name)
		default:
			fmt.Fprint(w, "ok")
		}
	}
}

// slis has the results of health checks for /metrics/slis, by check and endpoint, like all
// components of Kubernetes.
type slis struct {
	reg   *prometheus.Registry
	now   *prometheus.GaugeVec
	total *prometheus.CounterVec
}

// newSLIs creates the metrics (KEP-3466).
func newSLIs() *slis {
	s := &slis{
		reg: prometheus.NewRegistry(),
		now: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "Result of the last health check: 1 for success.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Health checks by result.",
		}, []string{"name", "status", "type"}),
	}
	s.reg.MustRegister(s.now, s.total) // its own registry: nothing to clash with
	return s
}

// saw records the result of one check. kind is the endpoint, such as "healthz".
func (s *slis) saw(check, kind string, err error) {
	status, value := "success", 1.0
	if err != nil {
		status, value = "error", 0
	}
	s.now.WithLabelValues(check, kind).Set(value)
	s.total.WithLabelValues(check, status, kind).Inc()
}
