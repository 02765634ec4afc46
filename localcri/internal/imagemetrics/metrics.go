//go:build linux

// Package imagemetrics exports metrics of an image store.
//
//	m, err := imagemetrics.New(registry)
//	...
//	store, err := image.New(image.Config{Observer: m, ...})
//	...
//	err = m.Add(store.Counts)
//
// It is a separate package so that programs without it do not depend on Prometheus.
//
//	nodewright_image_store_operation_seconds{operation}    pull, import, download, unpack
//	nodewright_image_store_operation_errors_total{operation,code}
//	nodewright_image_store_images                          complete images
//	nodewright_image_store_layers                          layers on the disk
//	nodewright_image_store_layer_bytes                     size of the files in them
//	nodewright_image_store_layers_pending                  layers in download
//	nodewright_image_store_owners                          users of layers
//	nodewright_image_store_downloaded_bytes_total          blobs from registries
//	nodewright_image_store_set_aside_total{kind}           layer, image, lease: found damaged
//
// The number of label values is limited: operations come from package image, and codes from gRPC;
// any other code counts as Unknown.
package imagemetrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/localcri/image"
)

// seconds are the histogram buckets: from a layer with a few files to a pull that takes an hour.
var seconds = []float64{0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600}

// Metrics are the metrics of an image store. The methods may be called from any goroutine.
type Metrics struct {
	reg    prometheus.Registerer
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
}

var _ image.Observer = (*Metrics)(nil)

// New registers new Metrics. If reg is nil they are not exported.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		reg: reg,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "nodewright_image_store_operation_seconds", Help: "Time that operations on images took.", Buckets: seconds,
		}, []string{"operation"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodewright_image_store_operation_errors_total", Help: "Operations on images that failed, by the error's code.",
		}, []string{"operation", "code"}),
	}
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(promshare.Register(reg, m.took), promshare.Register(reg, m.failed))
}

// Observe records a finished operation.
func (m *Metrics) Observe(op string, took time.Duration, code codes.Code) {
	m.took.WithLabelValues(op).Observe(took.Seconds())
	if code == codes.OK {
		return
	}
	if code > codes.Unauthenticated { // a registry may have sent any number
		code = codes.Unknown
	}
	m.failed.WithLabelValues(op, code.String()).Inc()
}

// Add exports the counts of a store. They are read at each scrape.
func (m *Metrics) Add(counts func() image.Counts) error {
	if m.reg == nil {
		return nil
	}
	return promshare.Register(m.reg, &counted{counts: counts})
}

// counted exports Counts; all values of a scrape are from the same moment.
type counted struct {
	counts func() image.Counts
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nodewright_image_store_"+name, help, labels, nil)
}

var (
	images     = desc("images", "Images that are whole.")
	layers     = desc("layers", "Layers on the disk.")
	layerBytes = desc("layer_bytes", "Sizes of the files of all layers.")
	pending    = desc("layers_pending", "Layers that are being downloaded and unpacked.")
	owners     = desc("owners", "Containers that use layers.")
	downloaded = desc("downloaded_bytes_total", "Bytes of blobs that came from registries.")
	aside      = desc("set_aside_total", "What was found damaged and set aside since the start.", "kind")
)

func (c *counted) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{images, layers, layerBytes, pending, owners, downloaded, aside} {
		ch <- d
	}
}

func (c *counted) Collect(ch chan<- prometheus.Metric) {
	now := c.counts()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(images, float64(now.Images))
	gauge(layers, float64(now.Layers))
	gauge(layerBytes, float64(now.LayerBytes))
	gauge(pending, float64(now.Flights))
	gauge(owners, float64(now.Owners))
	ch <- prometheus.MustNewConstMetric(downloaded, prometheus.CounterValue, float64(now.Downloaded))
	for kind, n := range map[string]uint64{"layer": now.DamagedLayers, "image": now.DamagedRecords, "lease": now.DamagedLeases} {
		ch <- prometheus.MustNewConstMetric(aside, prometheus.CounterValue, float64(n), kind)
	}
}
