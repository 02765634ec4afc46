package cri

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics of runtime calls, with the same names and the same values of
// the label operation_type: the name of the call in snake case. So dashboards for the kubelet
// work unchanged.
type metrics struct {
	calls, errors *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

// newMetrics makes the metrics and registers them with reg. If reg is nil, they are counted and not
// exported. Buckets are in seconds, from 5 ms to 12 minutes.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	label := []string{"operation_type"}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "Calls of the container runtime.",
		}, label),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "Calls of the container runtime that failed.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "Duration of calls of the container runtime.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, label),
	}
	return m, promshare.Register(reg, m.calls, m.errors, m.duration)
}

// observe counts the end of a call. The duration of a failed call is observed, too, so
// that a hanging runtime is visible.
func (m *metrics) observe(op string, start time.Time, err error) {
	m.calls.WithLabelValues(op).Inc()
	m.duration.WithLabelValues(op).Observe(time.Since(start).Seconds())
	failed := m.errors.WithLabelValues(op) // it is there from the first call, so that an alert sees the first failure
	if err != nil {
		failed.Inc()
	}
}
