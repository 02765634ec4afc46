package csi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the kubelet's, by its names.
type metrics struct{ calls *prometheus.HistogramVec }

// newMetrics makes the metrics and registers them; without a registerer they are
// counted and not shown. Buckets are in seconds; those of 300 and 600 stay empty, as
// calls end before.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds", Help: "How long calls to CSI drivers took.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, // the kubelet's
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
	if reg == nil {
		return m, nil
	}
	return m, promshare.Register(reg, m.calls)
}

// call notes the end of a call. Label migrated is always "false": what a volume was
// before its translation is not known at this place.
func (m *metrics) call(driver, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code.String(), "false").Observe(took.Seconds())
}
