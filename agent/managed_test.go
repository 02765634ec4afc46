package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
	"github.com/nodewright/nodewright/volumemgr"
)

// managedSource is a source of pods that its sink follows.
type managedSource struct{ *apiSource }

func newManagedSource() managedSource { return managedSource{newAPISource()} }

func (managedSource) Name() string      { return "orders" }
func (managedSource) Kind() podmgr.Kind { return podmgr.Managed }

// follower is a sink that writes down what it hears.
type follower struct {
	mu    sync.Mutex
	heard []string // without repetitions
	fails int      // so many deletions
}

func (f *follower) hear(s string) {
	if n := len(f.heard); n == 0 || f.heard[n-1] != s {
		f.heard = append(f.heard, s)
	}
}

func (f *follower) Update(_ context.Context, pod *v1.Pod, st v1.PodStatus) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hear(pod.Name + " " + string(st.Phase))
	return nil
}

func (f *follower) Delete(_ context.Context, pod *v1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return errors.New("not now")
	}
	f.hear(pod.Name + " deleted")
	return nil
}

// A pod that a source of one's own does not name any more comes to its end in the
// sink, in the time that it has by default, and also if the sink is down at first.
func TestManagedPodEndsInTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, src, sink := newNode(t), newManagedSource(), &follower{fails: 4}
		n.sink, n.more = sink, []podmgr.Source{src}
		l := n.start()
		defer l.stop()
		p := newPod("p", runs("c"))
		p.Spec.TerminationGracePeriodSeconds = nil
		src.tell(p)
		settle()
		l.wantPhase("p", v1.PodRunning)
		if g := l.pod("p").Spec.TerminationGracePeriodSeconds; g == nil || *g != 30 {
			t.Errorf("grace %v, want 30 by default", g)
		}
		src.tell()
		time.Sleep(5 * time.Minute)
		settle()
		n.wantNothingLeft()
		if tail := sink.heard[max(0, len(sink.heard)-2):]; !slices.Equal(tail, []string{"p Failed", "p deleted"}) && !slices.Equal(tail, []string{"p Succeeded", "p deleted"}) {
			t.Errorf("heard %q, want its end last", sink.heard)
		}
		if pods := l.Pods(); len(pods) != 0 {
			t.Errorf("%d pods are still shown", len(pods))
		}
	})
}

// A pod that others follow and that was rejected stays so when it is edited: they may have
// heard that it failed, which is final.
func TestRejectedStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, src, p := newNode(t), newManagedSource(), &reserver{answer: &part.Rejection{Reason: "No"}}
		n.more, n.admitters = []podmgr.Source{src}, []part.Part{p}
		pod := newPod("p", runs("c"))
		src.tell(pod)
		l := n.start()
		defer l.stop()
		settle()
		l.wantPhase("p", v1.PodFailed)
		p.say(nil)
		edited := pod.DeepCopy()
		edited.Labels = map[string]string{"a": "b"}
		src.tell(edited)
		settle()
		l.wantPhase("p", v1.PodFailed)
		if n := p.add(0); n != 0 {
			t.Errorf("%d reservations", n)
		}
	})
}

// brokenSink takes no status.
type brokenSink struct{}

func (brokenSink) Update(context.Context, *v1.Pod, v1.PodStatus) error { return errors.New("not now") }
func (brokenSink) Delete(context.Context, *v1.Pod) error               { return errors.New("not now") }

// A pod that others follow and that an earlier process rejected stays so, even if it would be
// admitted now: the status that says so is sent as soon as the agent starts.
func TestRejectedStaysSoOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, src, p := newNode(t), newManagedSource(), &reserver{answer: &part.Rejection{Reason: "No"}}
		n.sink, n.more, n.admitters = brokenSink{}, []podmgr.Source{src}, []part.Part{p}
		pod := newPod("p", runs("c"))
		src.tell(pod)
		l := n.start()
		settle()
		l.wantPhase("p", v1.PodFailed)
		l.stop()
		p.say(nil)
		sink, src := &follower{}, newManagedSource()
		n.sink, n.more = sink, []podmgr.Source{src}
		src.tell(pod)
		l = n.start()
		defer l.stop()
		settle()
		if want := []string{"p Failed"}; !slices.Equal(sink.heard, want) {
			t.Errorf("heard %q, want %q", sink.heard, want)
		}
		if all, _ := n.containers(); p.add(0) != 0 || len(all) != 0 {
			t.Errorf("%d reservations, containers %v", p.add(0), all)
		}
	})
}

// A pod that is rejected before the other sources have spoken is published as
// failed, and never as running.
func TestRejectedAtOnceIsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, src, sink := newNode(t), newManagedSource(), &follower{}
		mute := &fakeSource{snapshots: make(chan podmgr.Snapshot)}
		n.sink, n.more = sink, []podmgr.Source{src, named{mute, "mute"}}
		big := newPod("big", runs("c"))
		big.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
		src.tell(big)
		l := n.start()
		defer l.stop()
		settle()
		if want := []string{"big Failed"}; !slices.Equal(sink.heard, want) {
			t.Errorf("heard %q, want %q", sink.heard, want)
		}
	})
}

// slowVolumes are volumes that take time to be unmounted.
type slowVolumes struct{ takes time.Duration }

func (slowVolumes) Mount(context.Context, *v1.Pod) (volumemgr.Mounts, error) {
	return volumemgr.Mounts{}, nil
}

func (s slowVolumes) Unmount(ctx context.Context, _ types.UID) error {
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slowVolumes) Remove(ctx context.Context, uid types.UID) error { return s.Unmount(ctx, uid) }

func (slowVolumes) Sweep(context.Context, func(types.UID) bool) error { return nil }

// A source may drop a pod that ended by itself at any time: the sink is told of the deletion, once.
func TestManagedPodThatEndedIsDeletedInTheSink(t *testing.T) {
	for pause := time.Duration(0); pause < 6*time.Second; pause += 490 * time.Millisecond {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := agenttest.New(t)
				n.Source = agenttest.NewSource("ci", podmgr.Managed)
				n.Config.Sources = []podmgr.Source{n.Source}
				n.Config.Volumes.Manager = slowVolumes{2 * time.Second}
				n.Start()
				p := agenttest.Pod("job", agenttest.Container("main", "sleep", "2s", "exit", "7"))
				p.Spec.RestartPolicy = v1.RestartPolicyNever
				n.Want(p)
				n.Await("job", agenttest.Phase(v1.PodFailed))
				time.Sleep(pause)
				n.Want()
				time.Sleep(5 * time.Minute)
				deleted := 0
				for _, r := range n.Sink.Reports() {
					if r.Deleted {
						deleted++
					}
				}
				if deleted != 1 {
					t.Errorf("%d deletions, want 1: %v", deleted, n.Sink.Reports())
				}
			})
		})
	}
}
