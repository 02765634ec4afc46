package agent_test

import (
	"context"
	"errors"
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
type sweeper struct {
	sweeps atomic.Int32
	fails  atomic.Bool
}

func (*sweeper) Name() string { return "sweeper" }

func (s *sweeper) Sweep(context.Context, func(types.UID) bool) error {
	s.sweeps.Add(1)
	if s.fails.Load() {
		return errors.New("disk failed")
	}
	return nil
}

// Nothing is looked for on disks when pods come, or when the source shows what the
// node has published; when one goes, and a minute later, it is.
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

// A node at rest looks at its disks ever more rarely: after a minute, and then after twice the
// time until ten minutes. What could not be removed is tried each minute.
func TestSweepsAreRareAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := agenttest.New(t), &sweeper{}
		n.Config.Parts = []part.Part{s}
		n.Start()
		n.Want(agenttest.Pod("a", agenttest.Container("c")), agenttest.Pod("b", agenttest.Container("c")))
		n.Await("a", agenttest.Ready)
		n.Await("b", agenttest.Ready)
		sweeps := func(d time.Duration) int32 {
			before := s.sweeps.Load()
			time.Sleep(d)
			synctest.Wait()
			return s.sweeps.Load() - before
		}
		if got := sweeps(16 * time.Minute); got < 3 || got > 5 {
			t.Errorf("%d sweeps in the first 16 minutes, want those after 1, 2, 4 and 8", got)
		}
		if got := sweeps(24 * time.Hour); got < 142 || got > 144 {
			t.Errorf("%d sweeps in a day, want one every ten minutes", got)
		}
		n.Want(agenttest.Pod("a", agenttest.Container("c")))
		n.AwaitGone("b")
		sweeps(time.Second)
		if got := sweeps(4 * time.Minute); got < 2 {
			t.Errorf("%d sweeps in the minutes after a pod went, want those after 1 and 3", got)
		}
		s.fails.Store(true)
		sweeps(2 * time.Hour)
		if got := sweeps(time.Hour); got < 58 || got > 60 {
			t.Errorf("%d sweeps in an hour in which each fails, want one a minute", got)
		}
	})
}
