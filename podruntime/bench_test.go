package podruntime

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// The plan for a pod with an init container, a sidecar and three containers,
// of which one has ended.
func BenchmarkPlan(b *testing.B) {
	w := build(v1.RestartPolicyAlways, []string{"i", "side*"}, "c1", "c2", "c3").sandbox(observed.Running, "10.0.0.1").
		all(observed.Exited, 0, "i").all(observed.Running, 0, "side", "c1", "c2").all(observed.Exited, 1, "c3")
	b.ReportAllocs()
	for b.Loop() {
		if a := Plan(PlanInput{Pod: w.pod, Observed: w.obs}); len(a.Regular) != 1 {
			b.Fatalf("%+v", a)
		}
	}
}
