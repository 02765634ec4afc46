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

// A sync that makes a pod of three containers, without the runtime's time.
func BenchmarkStart(b *testing.B) {
	w := build(v1.RestartPolicyAlways, nil, "c1", "c2", "c3")
	m := manager(b, newMemory())
	req := request(b, w, nil)
	b.ReportAllocs()
	for b.Loop() {
		r := newMemory()
		m.rt = r
		req.Observed = r.look()
		if res := m.Sync(b.Context(), req); res.Err() != nil || len(res.Actions) != 4 {
			b.Fatalf("%+v", res)
		}
		m.Forget(w.pod.UID)
	}
}

// A sync of that pod when there is nothing to do.
func BenchmarkRest(b *testing.B) {
	r, w := newMemory(), build(v1.RestartPolicyAlways, nil, "c1", "c2", "c3")
	m := manager(b, r)
	mustSync(b, m, request(b, w, r.look()))
	req := request(b, w, r.look())
	b.ReportAllocs()
	for b.Loop() {
		if res := m.Sync(b.Context(), req); len(res.Actions) != 0 {
			b.Fatalf("%+v", res)
		}
	}
}
