package agent_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/nodewright/nodewright/agent/lifecycle"
	"github.com/nodewright/nodewright/agent/pressure"
	nodeblock "github.com/nodewright/nodewright/node"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmgr"
)

// unlucky panics wherever an embedder's code is called, as long as it is to.
type unlucky struct {
	luck     atomic.Bool
	admitted atomic.Int32
}

func (u *unlucky) panic() {
	if !u.luck.Load() {
		panic("unlucky")
	}
}

func (*unlucky) Name() string { return "unlucky" }

func (u *unlucky) Admit(*v1.Pod, []*v1.Pod) *part.Rejection {
	if u.admitted.Add(1) > 1 { // the first pod gets as far as the other hooks
		u.panic()
	}
	return nil
}

func (u *unlucky) Prepare(context.Context, *v1.Pod, *observed.Pod) error { u.panic(); return nil }
func (u *unlucky) Report(*v1.Pod, *v1.PodStatus)                         { u.panic() }
func (u *unlucky) Housekeep([]*v1.Pod)                                   { u.panic() }
func (u *unlucky) Explain(*v1.Pod) string                                { u.panic(); return "" }
func (u *unlucky) Restore(context.Context) error                         { u.panic(); return nil }
func (u *unlucky) Event(*v1.Pod, string, string, string)                 { u.panic() }
func (u *unlucky) Update(context.Context, *v1.Pod, v1.PodStatus) error   { u.panic(); return nil }
func (u *unlucky) Delete(context.Context, *v1.Pod) error                 { u.panic(); return nil }

// steadyMachine is one that stays up.
type steadyMachine struct{}

func (steadyMachine) Watch(ctx context.Context, _ time.Duration, on func(bool)) error {
	on(false)
	<-ctx.Done()
	return nil
}

func (steadyMachine) Release() {}

// badSource is a source that panics.
type badSource struct{}

func (badSource) Name() string { return "bad" }
func (badSource) Run(_ context.Context, deliver func(podmgr.Snapshot)) error {
	deliver(podmgr.Snapshot{})
	panic("bad")
}

func TestPanicsOfTheEmbedder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, u, reg := newNode(t), &unlucky{}, prometheus.NewRegistry()
		n.metrics, n.parts, n.sink = reg, []part.Part{u}, u
		n.more = []podmgr.Source{badSource{}}
		n.configure = func(c *agent.Config) { c.Events = u }
		n.want = []*v1.Pod{newPod("a", runs("c")), newPod("b", runs("c"))}
		l := n.start()
		settle()
		if _, running := n.containers(); len(running) != 0 {
			t.Errorf("running although it could not be prepared: %v", running)
		}
		if why := l.Why(l.pod("a")); why.LastError != "unlucky panicked: unlucky" {
			t.Errorf("why: %+v", why)
		}
		if st := l.pod("b").Status; st.Reason != "UnexpectedAdmissionError" {
			t.Errorf("a pod whose admission panicked: %+v", st)
		}
		for _, of := range []string{"unlucky", "source bad", "sink", "events"} {
			if n := panics(t, reg, of); n == 0 {
				t.Errorf("no panic of %s is counted", of)
			}
		}
		u.luck.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.wantPhase("a", v1.PodRunning)
		l.stop()
	})
}

func panics(t *testing.T, reg *prometheus.Registry, of string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "nodewright_panics_total" && m.GetLabel()[0].GetValue() == of {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// worker is a part that runs until it is told how to end.
type worker struct{ end chan error }

func (worker) Name() string { return "worker" }
func (w worker) Run(ctx context.Context) error {
	select {
	case err := <-w.end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestPartThatFailsEndsTheAgent(t *testing.T) {
	for _, fails := range []error{errors.New("no more"), nil} {
		synctest.Test(t, func(t *testing.T) {
			n, w := newNode(t), worker{make(chan error, 1)}
			n.parts = []part.Part{w}
			n.want = []*v1.Pod{newPod("web", runs("c"))}
			l := n.start()
			settle()
			w.end <- fails
			settle()
			if fails == nil { // it is done, and the agent is not
				l.wantPhase("web", v1.PodRunning)
				l.stop()
				return
			}
			if err := <-l.ended; !errors.Is(err, fails) || !strings.Contains(err.Error(), "part worker: ") {
				t.Errorf("Run returned %v, want the part's name and error", err)
			}
			if _, running := n.containers(); running["web/c"] != 1 {
				t.Error("its containers went with it")
			}
		})
	}
}

func (brokenCgroups) Sweep(context.Context, func(types.UID) bool) ([]types.UID, error) {
	return nil, nil
}

// stubborn is a part that does not end with its context.
type stubborn struct{ free chan struct{} }

func (stubborn) Name() string                { return "stubborn" }
func (s stubborn) Run(context.Context) error { <-s.free; return nil }

// An agent can always be ended. While something of it hangs it keeps its lock.
func TestPartThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(t), stubborn{make(chan struct{})}
		n.parts = []part.Part{s}
		l := n.start()
		settle()
		at := time.Now()
		l.stop()
		if took := time.Since(at); took < 10*time.Second || took > time.Minute {
			t.Errorf("the agent ended after %v", took)
		}
		if err := <-n.start().ended; !errors.Is(err, nodeblock.ErrLocked) {
			t.Errorf("the next agent: %v, want ErrLocked", err)
		}
		close(s.free)
		settle()
		l = n.start()
		settle()
		l.stop()
	})
}

// brokenCgroups are cgroups whose manager ends with an error.
type brokenCgroups struct {
	agent.Cgroups
	err error
}

func (b brokenCgroups) Run(context.Context) error           { time.Sleep(time.Second); return b.err }
func (brokenCgroups) Ensure(context.Context, *v1.Pod) error { return nil }
func (brokenCgroups) CgroupParent(*v1.Pod) string           { return "" }

func TestErrorOfABlockIsTheAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, broken := newNode(t), errors.New("the hierarchy is gone")
		n.configure = func(c *agent.Config) { c.Cgroups = brokenCgroups{err: broken} }
		l := n.start()
		if err := <-l.ended; !errors.Is(err, broken) {
			t.Errorf("Run returned %v, want %v", err, broken)
		}
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newNode(t).start()
		settle()
		if err := l.Run(t.Context()); !errors.Is(err, agent.ErrStarted) {
			t.Errorf("a second Run returned %v, want ErrStarted", err)
		}
		l.stop()
		if err := l.Run(t.Context()); !errors.Is(err, agent.ErrStarted) {
			t.Errorf("a Run after the end returned %v, want ErrStarted", err)
		}
	})
}

// Parts are named, once each, and all that is wrong with them is said at once.
func TestPartsThatCannotBe(t *testing.T) {
	n := newNode(t)
	_, err := agent.New(agent.Config{Parts: []part.Part{worker{}, nil, worker{}, part.AdmitFunc("", nil)}, Runtime: n.rt})
	for _, want := range []string{"Parts[1] is nil", `Parts[2] is named "worker"; a name of its own is required`, `Parts[3] is named ""`, "Sources is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// visitor is a part that keeps its host for the test.
type visitor struct{ host part.Host }

func (*visitor) Name() string { return "visitor" }

func (v *visitor) Join(h part.Host) error { v.host = h; return nil }

// A disk on which every part's state lies, and which hangs, holds up the pods that
// need it. The loop turns, and a pod that needs nothing of it runs.
func TestHungDiskHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := claimNode(t)
		n.hung = &agenttest.HungStore{}
		n.eviction, n.shutdown = &pressure.EvictionConfig{}, &lifecycle.ShutdownConfig{Requested: time.Minute, Machine: steadyMachine{}}
		n.cluster = newCluster()
		n.cpus, n.placement = "8", pinnedNode(t).placement
		apart := newPod("apart", runs("c"))
		apart.Spec.HostUsers = new(bool)
		n.claims.add("claim")
		n.want = []*v1.Pod{newPod("plain", runs("c")), apart, claiming(newPod("claims", runs("c")), "claim")}
		poke := &visitor{}
		n.parts = []part.Part{poke}
		l := n.start()
		for range 40 { // longer than part.RestoreTimeout
			at := time.Now()
			time.Sleep(time.Second)
			synctest.Wait()
			l.Pods() // nobody who asks waits
			l.WhyNode()
			poke.host.Housekeep()
			synctest.Wait()
			if turn := l.LastTurn(); turn.Before(at) {
				t.Fatalf("the loop has not turned since %v, at %v", turn, at)
			}
		}
		_, running := n.containers()
		if running["apart/c"]+running["claims/c"] > 0 {
			t.Errorf("running without what they need: %v", running)
		}
		time.Sleep(6 * time.Minute) // what a pod waits at most for the allocations of before
		synctest.Wait()
		if n.hung.Calls() == 0 {
			t.Error("no part has asked its disk")
		}
		n.hung.Release()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		l.stop()
	})
}

// stacks are those of all goroutines, and inBubble counts those of a bubble.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func inBubble() int { return strings.Count(stacks(), ", synctest bubble ") }

// Agents that have ended leave nothing behind: the bubble could not end either.
func TestManyAgentsInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := claimNode(t)
		n.eviction = &pressure.EvictionConfig{Standalone: true}
		n.shutdown, n.cluster = &lifecycle.ShutdownConfig{Requested: time.Minute, Machine: steadyMachine{}}, newCluster()
		n.parts = []part.Part{part.AdmitFunc("never", func(p *v1.Pod, _ []*v1.Pod) *part.Rejection {
			if p.Name != "waits" {
				return nil
			}
			return &part.Rejection{Reason: "NotToday", Message: "come back", RetryUntil: time.Now().Add(24 * time.Hour)}
		})}
		limited := newPod("limited", runs("c"))
		limited.Spec.ActiveDeadlineSeconds = new(int64(100_000))
		n.want = []*v1.Pod{newPod("web", runs("c")), newPod("waits", runs("c")), limited}
		synctest.Wait()
		before := inBubble()
		var gone []weak.Pointer[agent.Agent]
		for range 20 {
			l := n.start()
			gone = append(gone, weak.Make(l.Agent))
			settle()
			l.wantPhase("web", v1.PodRunning)
			l.wantPhase("waits", v1.PodPending)
			l.stop()
			synctest.Wait()
			if left := inBubble() - before; left > 0 {
				t.Fatalf("%d goroutines are left:\n%s", left, stacks())
			}
		}
		if n := len(n.rt.Calls("StartContainer")); n != 2 {
			t.Errorf("%d starts by 20 agents, want those of the first", n)
		}
		for range 3 { // no timer of one is left either, that would keep it
			runtime.GC()
		}
		for i, a := range gone[:19] {
			if a.Value() != nil {
				t.Errorf("agent %d is still in use", i)
			}
		}
	})
}

// Somebody may ask where a pod would go before the agent runs.
func TestFitBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := deviceNode(t)
		l := n.start()
		var asked sync.WaitGroup
		for range 4 {
			asked.Go(func() { l.Fit(newPod("p", wants("c", thing, "1"))) })
		}
		settle()
		asked.Wait()
		l.stop()
	})
}
