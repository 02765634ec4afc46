package lifecycle

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// seconds are the kubelet's buckets of pod starts (pkg/kubelet/metrics).
var seconds = []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}

// metrics has the kubelet's metrics, with its names.
type metrics struct {
	duration, total, sli prometheus.Histogram
	network              prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds})
	}
	m := &metrics{
		duration: histogram("kubelet_pod_start_duration_seconds", "From the first sight of a pod until it runs."),
		total:    histogram("kubelet_pod_start_total_duration_seconds", "From a pod's creation until all its containers are seen to have started."),
		sli:      histogram("kubelet_pod_start_sli_duration_seconds", "From a pod's creation until all its containers are seen to have started, without pulls of images and init containers."),
		network: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_first_network_pod_start_sli_duration_seconds", Help: "The value of kubelet_pod_start_sli_duration_seconds for the first pod with a network of its own.",
		}),
	}
	return m, promshare.Register(reg, m.duration, m.total, m.sli, m.network)
}
