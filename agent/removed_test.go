package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmgr"
)

// A pod that was removed while no agent ran ends as one that is removed under the
// agent's eyes: with its hooks, and with the time that its spec gave it.
func TestPodRemovedWhileNoAgentRan(t *testing.T) {
	for _, kind := range []podmgr.Kind{podmgr.Static, podmgr.Managed} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.kind = kind
			c := runs("app", "trap", "0", "5s", "sleep", "forever")
			c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"exit", "0"}}}}
			n.want = []*v1.Pod{newPod("web", c)}
			l := n.start()
			settle()
			l.wantPhase("web", v1.PodRunning)
			l.stop()
			n.want = nil
			n.rt.ForgetCalls()
			l = n.start()
			time.Sleep(time.Minute)
			stops, removes := n.rt.Calls("StopContainer"), n.rt.Calls("RemoveContainer", "StopPodSandbox")
			if len(stops) == 0 || len(removes) == 0 {
				t.Fatalf("%v: stopped %v, removed %v", kind, stops, removes)
			}
			if took := removes[0].At.Sub(stops[0].At); took < 5*time.Second {
				t.Errorf("%v: the pod had %v; want the 5s that it takes, of its 10s", kind, took)
			}
			if hooks := n.rt.Calls("ExecSync"); len(hooks) != 1 || hooks[0].At.After(stops[0].At) {
				t.Errorf("%v: hooks %v", kind, hooks)
			}
			n.wantNothingLeft()
			l.stop()
		})
	}
}
