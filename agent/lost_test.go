package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A container that the runtime lost when the agent died at its start, and that
// it will not remove before it starts anew, holds up neither its pod nor the
// pod's end, and is gone in the end.
func TestLostStartHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.LoseStart()
		n.want = []*v1.Pod{newPod("p", runs("c"))}
		l := n.start()
		settle()
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantPhase("p", v1.PodRunning)
		if c := l.pod("p").Status.ContainerStatuses[0].RestartCount; c != 0 {
			t.Errorf("restart count %d, want 0", c)
		}
		n.want = nil
		l.tell()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if l.pod("p") != nil {
			t.Errorf("the pod waits for what the runtime lost: %+v", l.Why(l.pod("p")))
		}
		n.rt.FindLost()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		n.wantNothingLeft()
		l.stop()
	})
}
