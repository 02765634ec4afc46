//go:build linux

package localcri

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestCounts(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	counts := func() Counts {
		return Counts{Sandboxes: 1, Containers: 2, Monitors: 3, Successors: 4, SetAside: 5, Orphans: 6, LostLogBytes: 7}
	}
	if err := registerMetrics(reg, counts); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"sandboxes": 1, "containers": 2, "monitors": 3, "monitor_successors_total": 4, "records_set_aside_total": 5, "orphans_undone_total": 6, "log_lost_bytes_total": 7,
	} {
		if got["nodewright_localcri_"+name] != want {
			t.Errorf("%s is %v, want %v", name, got["nodewright_localcri_"+name], want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d metrics, want 7", len(got))
	}
	if err := registerMetrics(nil, counts); err != nil {
		t.Errorf("without a registry: %v", err)
	}
}
