package nodeagent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The metric says what is done, of every gate.
func TestGateMetrics(t *testing.T) {
	o := options(t, "featureGates: {ContainerCheckpoint: false, PodsAPI: true}\n")
	o.Metrics = prometheus.NewRegistry()
	n, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	all, err := o.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		if f.GetName() == "kubernetes_feature_enabled" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if len(got) < 200 {
		t.Errorf("%d gates", len(got))
	}
	for gate, want := range map[string]float64{"ContainerCheckpoint BETA": 0, "PodsAPI BETA": 0, "NodeSwap ": 1, "EventedPLEG ALPHA": 1} {
		if v, ok := got[gate]; !ok || v != want {
			t.Errorf("%q is %v (%t), want %v", gate, v, ok, want)
		}
	}
}
