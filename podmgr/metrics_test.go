package podmgr

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := New(Config{Sources: []Source{silent("file"), silent(podmeta.SourceAPI)}, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want map[string]float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				name := f.GetName()
				for _, l := range s.GetLabel() {
					name += " " + l.GetName() + "=" + l.GetValue()
				}
				got[name] = s.GetGauge().GetValue()
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	none := map[string]float64{
		"kubelet_desired_pods static=": 0, "kubelet_desired_pods static=true": 0, "kubelet_mirror_pods": 0, "nodewright_manifest_problems": 0,
	}
	check("at the start", none)
	m.merge(podmeta.SourceAPI, Snapshot{Pods: []*v1.Pod{with("a"), with("b")}})
	m.merge("file", Snapshot{Pods: []*v1.Pod{with("c"), with("c", uid("2"))}, Problems: []Problem{{Reason: "bad"}}})
	m.failed("file", "away")
	check("three pods, a fourth of the same name, a problem and a failure", map[string]float64{
		"kubelet_desired_pods static=": 2, "kubelet_desired_pods static=true": 1, "kubelet_mirror_pods": 0, "nodewright_manifest_problems": 3,
	})
	m.recovered("file")
	m.merge("file", Snapshot{})
	m.merge(podmeta.SourceAPI, Snapshot{})
	check("at the end", none)
}
