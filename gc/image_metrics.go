package gc

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Reasons for the removal of an image: values of the kubelet's metric label.
const (
	forAge   = "age"
	forSpace = "space"
)

// metrics has a counter of removals, and a gauge of the images in the last pass.
type metrics struct {
	collected *prometheus.CounterVec // the kubelet's metric
	bytes     *prometheus.GaugeVec
}

// newMetrics creates the metrics and registers them unless reg is nil. It returns an error if
// reg has another metric of the same name.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Removed images, by reason.",
		}, []string{"reason"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodewright_image_bytes", Help: "Total size of images in the last pass, by verdict.",
		}, []string{"verdict"}),
	}
	return m, promshare.Register(reg, m.collected, m.bytes)
}

// show sets the gauge from a pass. It sets every verdict, so that none keeps the number of an
// earlier pass.
func (m *metrics) show(images []ImageOutcome) {
	var bytes [numVerdicts]float64
	for i := range images {
		if o := &images[i]; !o.Removed {
			bytes[o.Verdict] += float64(o.Image.Size)
		}
	}
	for v := range numVerdicts {
		m.bytes.WithLabelValues(v.String()).Set(bytes[v])
	}
}
