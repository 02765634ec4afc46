package otlp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

type metrics struct{ sent, dropped *prometheus.CounterVec }

// newMetrics makes the metrics and registers them with reg, unless it is nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_otlp_sent_total", Help: "Spans and logs that the OpenTelemetry collector has taken.",
		}, []string{"what"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_otlp_dropped_total", Help: "Recorded entries that did not fit into the queue, and spans and logs that the OpenTelemetry collector has not taken.",
		}, []string{"what"}),
	}
	for _, what := range []string{"entries", "traces", "logs"} {
		m.dropped.WithLabelValues(what)
	}
	return m, promshare.Register(reg, m.sent, m.dropped)
}
