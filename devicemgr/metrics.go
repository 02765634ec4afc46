package devicemgr

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics use the kubelet's names where the kubelet has the same metric. maxResources limits the
// values of the label resource_name.
type metrics struct {
	registrations *prometheus.CounterVec
	allocate      *prometheus.HistogramVec
	damaged       prometheus.Counter
}

// newMetrics creates the metrics and registers them with reg, unless it is nil. Managers with the
// same registry share them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total", Help: "Registrations of device plugins.",
		}, []string{"resource_name"}),
		allocate: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_device_plugin_alloc_duration_seconds", Help: "Duration of Allocate calls to device plugins.",
			Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewright_device_records_damaged_total", Help: "Damaged device records of pods.",
		}),
	}
	return m, promshare.Register(reg, m.registrations, m.allocate, m.damaged)
}
