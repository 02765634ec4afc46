package csi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the kubelet's, by its names.
type metrics struct{ calls *prometheus.HistogramVec }

// newMetrics returns the metrics and registers them; without a registerer they are
// not exported. Buckets are in seconds; those of 300 and 600 are the kubelet's and
// stay empty, as calls end before.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds", Help: "Duration of calls to CSI drivers.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, // the kubelet's
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
	if reg == nil {
		return m, nil
	}
	return m, promshare.Register(reg, m.calls)
}

// call observes the end of a call. Label migrated is always "false": it is not
// known here whether a volume was translated.
func (m *metrics) call(driver, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code.String(), "false").Observe(took.Seconds())
}
