package statusmgr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/statusmgr"
)

var _ interface {
	statusmgr.Sink
	statusmgr.Loader
} = (*statusmgr.MemorySink)(nil)

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
}

func TestKeepsWhatItIsTold(t *testing.T) {
	s := statusmgr.NewMemorySink(2)
	for _, name := range []string{"b", "a", "b"} {
		if err := s.Update(t.Context(), pod(name), v1.PodStatus{Phase: v1.PodRunning}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.List(); len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("list %v", got)
	}
	if got := s.History(); len(got) != 2 || got[0].Pod.Name != "a" {
		t.Errorf("history %v, want the last two", got)
	}
	p, ok := s.Get("a")
	if !ok || p.Status.Phase != v1.PodRunning {
		t.Errorf("got %v, %v", p, ok)
	}
	p.Status.Phase = v1.PodFailed // the caller's own
	if st, err := s.Load(t.Context()); err != nil || st["a"].Phase != v1.PodRunning || len(st) != 2 {
		t.Errorf("loaded %v, %v", st, err)
	}
	if err := s.Delete(t.Context(), pod("a")); err != nil {
		t.Error(err)
	}
	if _, ok := s.Get("a"); ok {
		t.Error("it is there after its deletion")
	}
}

func TestFailsAndDelaysOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := statusmgr.NewMemorySink(10)
		bad := errors.New("bad")
		s.FailWith(func(p *v1.Pod) error {
			if p.Name == "bad" {
				return bad
			}
			return nil
		})
		s.DelayBy(func(p *v1.Pod) time.Duration { return time.Minute })
		if err := s.Update(t.Context(), pod("bad"), v1.PodStatus{}); !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Update(ctx, pod("slow"), v1.PodStatus{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if _, err := s.Wait(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited for a write that never came: %v", err)
		}
		go func() { _ = s.Update(t.Context(), pod("slow"), v1.PodStatus{}) }()
		began := time.Now()
		if w, err := s.Wait(t.Context(), 1); err != nil || len(w) != 1 || time.Since(began) != time.Minute {
			t.Errorf("%v, %v after %v", w, err, time.Since(began))
		}
		if ok, failed := s.Counts(); ok != 1 || failed != 2 {
			t.Errorf("%d calls succeeded and %d failed", ok, failed)
		}
	})
}

func ExampleMemorySink() {
	sink := statusmgr.NewMemorySink(10)
	m, err := statusmgr.New(statusmgr.Config{Sink: sink})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	m.Set(pod("web"), v1.PodStatus{Phase: v1.PodRunning})
	writes, err := sink.Wait(ctx, 1)
	fmt.Println(writes[0].Pod.Name, writes[0].Pod.Status.Phase, err)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// web Running <nil>
	// <nil>
}
