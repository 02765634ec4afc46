package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/promshare"
)

// zapError returns a zap field, so that other files need not import zap.
func zapError(err error) zap.Field { return zap.Error(err) }

// metrics has the kubelet's metrics of requests, with its names and labels, since dashboards use them.
type metrics struct {
	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inflight   *prometheus.GaugeVec
	webSockets *prometheus.CounterVec
	provider   *prometheus.GaugeVec
}

// newMetrics creates the metrics and registers them with reg, unless it is nil. Several servers
// may share a registerer.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Requests since the start.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration of requests.", Buckets: prometheus.DefBuckets,
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Requests that are being served.",
		}, labels),
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total", Help: "WebSocket streams that are translated to SPDY.",
		}, []string{"subresource"}),
		provider: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_metrics_provider", Help: "1 for the source of the list of containers.",
		}, []string{"provider"}),
	}
	// Constant while the process runs.
	m.provider.WithLabelValues("cri").Set(1) // the kubelet's other value is cadvisor
	return m, promshare.Register(reg, m.requests, m.duration, m.inflight, m.webSockets, m.provider)
}

// observe counts a request. The caller calls the returned function when the request ends.
func (m *metrics) observe(labels []string) func() {
	began := time.Now()
	// Counted at the start, as in the kubelet, so that a running stream is visible.
	m.requests.WithLabelValues(labels...).Inc()
	inflight := m.inflight.WithLabelValues(labels...)
	inflight.Inc()
	return func() {
		inflight.Dec()
		m.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	}
}

// labels returns the metric labels of requests. All unknown paths and methods share one label, so
// that clients cannot create time series.
type labels struct {
	server string
	paths  map[string]bool
}

// newLabels takes the routes of a server, and the server's name for a label.
func newLabels(server string, rs []route) *labels {
	l := &labels{server: server, paths: map[string]bool{}}
	for _, r := range rs {
		l.paths[pathLabel(r.pattern)] = true
	}
	return l
}

// of returns the values of method, path, server_type and long_running.
func (l *labels) of(r *http.Request) []string {
	// The method is text from the client, like the path.
	method := r.Method
	switch method {
	case http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
		http.MethodDelete, http.MethodTrace, http.MethodConnect:
	default:
		method = "other"
	}
	// The path of the request, not of the route, since it is known before routing.
	path := pathLabel(r.URL.Path)
	if !l.paths[path] {
		path = "other"
	}
	return []string{method, path, l.server, strconv.FormatBool(longRunning(path))}
}

// longRunning reports whether a path counts as long-running in the kubelet. It includes port
// forwarding, which the kubelet intends to count. path is a label.
func longRunning(path string) bool {
	switch path {
	case "exec", "attach", "portForward", "debug":
		return true
	default:
		return false
	}
}

// firstElement returns the first element of a path.
func firstElement(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// pathLabel returns the first element of a path; for metrics, also the second.
func pathLabel(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "metrics" && rest != "" {
		second, _, _ := strings.Cut(rest, "/")
		return first + "/" + second
	}
	return first
}
