//go:build linux

package imagemetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/localcri/internal/imagemetrics"
)

// values gathers all metrics; of histograms, how much they observed.
func values(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := imagemetrics.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	c := image.Counts{Images: 1, Layers: 2, LayerBytes: 3, Flights: 4, Owners: 5, Downloaded: 6, DamagedLayers: 7, DamagedRecords: 8, DamagedLeases: 9}
	if err := m.Add(func() image.Counts { return c }); err != nil {
		t.Fatal(err)
	}
	m.Observe(image.OpPull, time.Second, codes.OK)
	m.Observe(image.OpPull, time.Minute, codes.NotFound)
	m.Observe(image.OpUnpack, time.Second, codes.OK)
	for i := range 1000 {
		m.Observe(image.OpPull, time.Second, codes.Code(100+i)) // made up
	}
	want := map[string]float64{
		"nodewright_image_store_operation_seconds pull":               1002,
		"nodewright_image_store_operation_seconds unpack":             1,
		"nodewright_image_store_operation_errors_total NotFound pull": 1,
		"nodewright_image_store_operation_errors_total Unknown pull":  1000,
		"nodewright_image_store_images":                               1,
		"nodewright_image_store_layers":                               2,
		"nodewright_image_store_layer_bytes":                          3,
		"nodewright_image_store_layers_pending":                       4,
		"nodewright_image_store_owners":                               5,
		"nodewright_image_store_downloaded_bytes_total":               6,
		"nodewright_image_store_set_aside_total layer":                7,
		"nodewright_image_store_set_aside_total image":                8,
		"nodewright_image_store_set_aside_total lease":                9,
	}
	if got := values(t, reg); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if _, err := imagemetrics.New(reg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
	if m, err := imagemetrics.New(nil); err != nil || m.Add(func() image.Counts { return c }) != nil {
		t.Errorf("without a registry: %v", err)
	}
}

// A store as it is wired: what it does is there to be read.
func TestOfAStore(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := imagemetrics.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	s, err := image.New(image.Config{RootDir: t.TempDir(), Observer: m})
	if err == nil {
		err = m.Add(s.Counts)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, reg); got["nodewright_image_store_images"] != 0 || len(got) != 9 {
		t.Errorf("%v", got)
	}
}
