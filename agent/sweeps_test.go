package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
)

// sweeper counts sweeps.
type sweeper struct{ sweeps atomic.Int32 }

func (*sweeper) Name() string { return "sweeper" }

func (s *sweeper) Sweep(context.Context, func(types.UID) bool) error {
	s.sweeps.Add(1)
	return nil
}

// Nothing is looked for on disks when pods come, or when the source shows what the
// node has published; when one goes, and once a minute, it is.
func TestSweepsAreForPodsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := agenttest.New(t), &sweeper{}
		n.Source = agenttest.NewSource("api", podmgr.API)
		n.Config.Sources = []podmgr.Source{n.Source}
		n.Config.Parts = []part.Part{s}
		n.Start()
		first := agenttest.Pod("first", agenttest.Container("c"))
		n.Want(first)
		n.Await("first", agenttest.Ready)
		time.Sleep(time.Second)
		before := s.sweeps.Load()

		second := agenttest.Pod("second", agenttest.Container("c"))
		n.Want(first, second)
		n.Await("second", agenttest.Ready)
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning} {
			shown := second.DeepCopy()
			shown.Status.Phase = phase
			n.Want(first, shown)
			time.Sleep(time.Second)
		}
		if now := s.sweeps.Load(); now != before {
			t.Errorf("%d sweeps while a pod came, want none", now-before)
		}

		n.Want(first)
		n.AwaitGone("second")
		time.Sleep(time.Second)
		gone := s.sweeps.Load()
		if gone == before {
			t.Error("no sweep when a pod went")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.sweeps.Load() == gone {
			t.Error("no sweep within a minute")
		}
	})
}
