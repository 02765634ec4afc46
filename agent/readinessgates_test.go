package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

// A pod is ready when others have said that its gates are open, and no longer
// when one is shut.
func TestReadinessGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		web := newPod("web", runs("c"))
		web.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		n.want = []*v1.Pod{web}
		l := n.start()
		settle()
		check := func(when string, want v1.ConditionStatus) {
			t.Helper()
			cs := l.pod("web").Status.Conditions
			i := slices.IndexFunc(cs, func(c v1.PodCondition) bool { return c.Type == v1.PodReady })
			if i < 0 || cs[i].Status != want {
				t.Errorf("%s: conditions %+v", when, cs)
			}
		}
		check("nobody has said anything", v1.ConditionFalse)
		for _, is := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionTrue} {
			now := web.DeepCopy()
			now.Status = *l.pod("web").Status.DeepCopy()
			now.Status.Conditions = append(slices.DeleteFunc(now.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == "example.com/gate" }),
				v1.PodCondition{Type: "example.com/gate", Status: is})
			n.want = []*v1.Pod{now}
			l.tell()
			settle()
			check("the gate is "+string(is), is)
		}
		l.stop()
	})
}
