package shutdown

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the kubelet's metrics of a graceful shutdown: its start and end time.
type metrics struct{ start, end prometheus.Gauge }

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		start: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_start_time_seconds", Help: "Unix time at which the last graceful shutdown began.",
		}),
		end: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_end_time_seconds", Help: "Unix time at which the last graceful shutdown had terminated its pods; 0 before.",
		}),
	}
	return m, promshare.Register(reg, m.start, m.end)
}

func (m *metrics) show(s state) {
	unix := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixNano()) / float64(time.Second)
	}
	m.start.Set(unix(s.StartTime))
	m.end.Set(unix(s.EndTime))
}
