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

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
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
