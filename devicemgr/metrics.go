package devicemgr

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// metrics are the kubelet's, by its names, where it has them. They work without a
// registry as well, so that no caller asks whether there is one. The label
// resource_name is bounded by maxResources.
type metrics struct {
	registrations *prometheus.CounterVec
	allocate      *prometheus.HistogramVec
	damaged       prometheus.Counter
}

// newMetrics registers the metrics with reg, if it is not nil. Another manager on
// the same registry shares them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total", Help: "Registrations of device plugins.",
		}, []string{"resource_name"}),
		allocate: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_device_plugin_alloc_duration_seconds", Help: "How long device plugins took to allocate.",
			Buckets: prometheus.DefBuckets,
		}, []string{"resource_name"}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewright_device_records_damaged_total", Help: "Pods of which the record of their devices was damaged.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.registrations), promshare.Register(reg, m.allocate), promshare.Register(reg, m.damaged))
}
