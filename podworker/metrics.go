package podworker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics of pod workers, with the same names.
type metrics struct {
	duration   *prometheus.HistogramVec
	start      prometheus.Histogram
	containers prometheus.Histogram
}

// newMetrics makes the metrics and registers them with reg. Managers with the same registerer
// share the metrics. If reg is nil, the metrics are not exported.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "Duration of one sync of a pod.",
		}, []string{"operation_type"}),
		start: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "From seeing a change of a pod to its worker taking it up.",
		}),
		containers: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_containers_per_pod_count", Help: "Containers of a pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
	}
	return m, promshare.Register(reg, m.duration, m.start, m.containers)
}

// took records the duration of a call.
func (m *metrics) took(k Kind, t UpdateType, d time.Duration) {
	operation := t.String()
	if k == Terminated {
		operation = k.String()
	}
	m.duration.WithLabelValues(operation).Observe(d.Seconds())
}
