package csi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics has the kubelet's metrics of CSI calls.
type metrics struct{ calls *prometheus.HistogramVec }

// newMetrics creates the metrics and registers them with reg, unless it is nil. Buckets are in
// seconds. Those for 300 and 600 stay empty, since calls end earlier, but the kubelet has them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "csi_operations_seconds", Help: "Duration of calls to CSI drivers.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}, // the kubelet's
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})}
	return m, promshare.Register(reg, m.calls)
}

// call records the end of a call. The label migrated is always "false": it is not known here
// whether a volume was translated.
func (m *metrics) call(driver, method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(driver, method, code.String(), "false").Observe(took.Seconds())
}
