package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Values of the labels, as in the kubelet.
const (
	opPrepare   = "PrepareResources"
	opUnprepare = "UnprepareResources"
	anyDriver   = "<any>"
)

// metrics has the kubelet's metrics of claims, and further ones.
type metrics struct {
	operations *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
	damaged    prometheus.Counter
}

// newMetrics creates the metrics and registers them with reg, unless it is nil. The buckets are
// the kubelet's, in seconds, up to just below the deadline of a call. inUse is called at each
// scrape and locks Manager.mu.
func newMetrics(reg prometheus.Registerer, inUse func() map[string]int) (*metrics, error) {
	buckets := prometheus.ExponentialBucketsRange(.1, 40, 15)
	m := &metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_operations_duration_seconds", Help: "Duration of preparing or unpreparing the claims of a pod.", Buckets: buckets,
		}, []string{"operation_name", "is_error"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "dra_grpc_operations_duration_seconds", Help: "Duration of calls to DRA drivers.", Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewright_dra_records_damaged_total", Help: "Damaged records of claims.",
		}),
	}
	return m, promshare.Register(reg, m.operations, m.calls, m.damaged, gauge(inUse))
}

// operation records the end of a Prepare or an Unprepare that had something to do.
func (m *metrics) operation(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// gauge counts claims when it is collected.
type gauge func() map[string]int

var inUseDesc = prometheus.NewDesc("dra_resource_claims_in_use",
	"Claims that are prepared, by driver; <any> counts each once.", []string{"driver_name"}, nil)

// Describe implements [prometheus.Collector].
func (g gauge) Describe(ch chan<- *prometheus.Desc) { ch <- inUseDesc }

// Collect implements [prometheus.Collector].
func (g gauge) Collect(ch chan<- prometheus.Metric) {
	for name, n := range g() {
		ch <- prometheus.MustNewConstMetric(inUseDesc, prometheus.GaugeValue, float64(n), name)
	}
}
