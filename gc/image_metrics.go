package gc

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/internal/promshare"
)

// Why an image was removed, as the kubelet labels it.
const (
	forAge   = "age"
	forSpace = "space"
)

// metrics are counters of removals, and gauges of the images at the last look.
type metrics struct {
	collected *prometheus.CounterVec // the kubelet's
	failed    prometheus.Counter
	images    *prometheus.GaugeVec
	bytes     *prometheus.GaugeVec
}

// newMetrics registers the metrics unless reg is nil; they count either way. An error means
// that reg has another metric of the same name.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		collected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_image_garbage_collected_total", Help: "Images that were removed, by why.",
		}, []string{"reason"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "nodewright_image_removal_failures_total", Help: "Removals of images that failed.",
		}),
		images: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodewright_images", Help: "Images at the last look, by what was to become of them.",
		}, []string{"verdict"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "nodewright_image_bytes", Help: "Sizes of images at the last look, by what was to become of them.",
		}, []string{"verdict"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.collected), promshare.Register(reg, m.failed), promshare.Register(reg, m.images), promshare.Register(reg, m.bytes))
}

// show sets the gauges from a pass. Every verdict is set, or one that no image has any more
// would keep its last number.
func (m *metrics) show(images []ImageOutcome) {
	var n, bytes [numVerdicts]float64
	for i := range images {
		if o := &images[i]; !o.Removed {
			n[o.Verdict]++
			bytes[o.Verdict] += float64(o.Image.Size)
		}
	}
	for v := range numVerdicts {
		m.images.WithLabelValues(v.String()).Set(n[v])
		m.bytes.WithLabelValues(v.String()).Set(bytes[v])
	}
}
