package netmetrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/localcri/internal/netmetrics"
	"github.com/nodewright/nodewright/network"
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
	m, err := netmetrics.New(reg)
	if err != nil {
		t.Fatal(err)
	}
	c := network.Counts{Retries: 1, Hung: 2, Kills: 3}
	c.States[network.Attached] = 4
	if err := m.Add(func() network.Counts { return c }); err != nil {
		t.Fatal(err)
	}
	m.Observe(network.OpSetUp, time.Second, network.OK)
	m.Observe(network.OpSetUp, time.Minute, network.Unavailable)
	for i := range 1000 {
		m.Observe(network.OpSetUp, time.Second, network.Code(100+i)) // made up
	}
	want := map[string]float64{
		"nodewright_network_operation_seconds set_up_pod":                  1002,
		"nodewright_network_operation_errors_total Unavailable set_up_pod": 1,
		"nodewright_network_operation_errors_total Unknown set_up_pod":     1000,
		"nodewright_network_attachments planned":                           0,
		"nodewright_network_attachments attached":                          4,
		"nodewright_network_attachments lost":                              0,
		"nodewright_network_attachments detaching":                         0,
		"nodewright_network_attachments damaged":                           0,
		"nodewright_network_retries_pending":                               1,
		"nodewright_network_hung_calls":                                    2,
		"nodewright_network_plugin_kills_total":                            3,
	}
	if got := values(t, reg); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if _, err := netmetrics.New(reg); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
	if m, err := netmetrics.New(nil); err != nil || m.Add(func() network.Counts { return c }) != nil {
		t.Errorf("without a registry: %v", err)
	}
}
