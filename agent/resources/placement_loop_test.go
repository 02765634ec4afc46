package resources_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/podspec"
)

// While Restore hangs, no hook blocks: new pods wait, and what is said of others
// counts when it is done.
func TestRestoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		web, a, gone := shares("web"), owns("a", "2"), owns("gone", "2")
		for _, pod := range []*v1.Pod{web, a, gone} {
			n.run(pod)
		}
		n.remove(gone) // with the agent away

		disk := &agenttest.HungStore{}
		n.store = slowStore{disk, part.OpenStore(n.dir, nil)}
		n.join()
		done := make(chan error)
		go func() { done <- n.p.Restore(t.Context()) }()
		synctest.Wait()
		if disk.Calls() != 1 {
			t.Fatal("the disk does not hang")
		}

		b := owns("b", "2")
		_, no := n.reserve(b)
		if no == nil || no.Reason != resources.ReasonNotRestored || !no.Outside || time.Until(no.RetryUntil) <= time.Minute {
			t.Errorf("rejection %+v", no)
		}
		if _, no := n.p.Reserve(t.Context(), part.Request{Pod: b, DryRun: true}); no == nil || no.Reason != resources.ReasonNotRestored {
			t.Errorf("dry run: %+v", no)
		}
		for _, pod := range []*v1.Pod{web, a, gone} {
			n.p.Adopt(pod)
		}
		if err := n.p.Prepare(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "not known yet") {
			t.Errorf("prepare: %v", err)
		}
		if _, err := n.p.BeforeCreate(t.Context(), part.Container{Pod: web, Name: "web"}, &runtimeapi.ContainerConfig{}); err == nil {
			t.Error("a container may be created anywhere")
		}
		if err := n.p.Stopped(t.Context(), part.RefOf(gone)); err != nil {
			t.Error(err)
		}
		if !n.p.FitsWithout(b, nil) {
			t.Error("what is not known is no reason not to wait")
		}
		otherHooks(t, n, a)
		if calls := n.host.Calls(); len(calls) > 0 {
			t.Errorf("calls %v", calls)
		}

		disk.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if calls := n.host.Calls(); !slices.Equal(calls, []string{"retry uid-web", "retry uid-a", "readmit"}) {
			t.Errorf("calls %v", calls)
		}
		n.run(b)
		if err := n.sync(a); err != nil {
			t.Error(err)
		}
		n.wantCPUs(map[string]string{"web": "0,5-7", "a": "1-2", "b": "3-4"})
		if err := n.p.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
			t.Error(err)
		}
		if got := n.checkpoints(); !slices.Equal(got, []string{"uid-a", "uid-b"}) {
			t.Errorf("checkpoints %v", got)
		}
	})
}

// otherHooks calls the hooks that read memory and have nothing to wait for.
func otherHooks(t *testing.T, n *placementNode, pod *v1.Pod) {
	t.Helper()
	n.p.ContainerStarted(part.Container{Pod: pod, Name: pod.Name}, "id")
	n.p.ContainerRemoved("id")
	n.p.OwnCPUs(pod)
	n.p.CPUs().Exclusive(pod.UID, pod.Name)
	n.p.Memory().Blocks(pod.UID, pod.Name)
	if err := n.p.CheckResize(pod, pod); err != nil {
		t.Error(err)
	}
	if err := n.p.Compile(pod, &podspec.Input{}); err != nil {
		t.Error(err)
	}
}

// slowStore is a store behind a disk that hangs for a while.
type slowStore struct {
	disk *agenttest.HungStore
	part.Store
}

func (s slowStore) Read(key string) ([]byte, error) {
	_, _ = s.disk.Read(key)
	return s.Store.Read(key)
}

func (s slowStore) Write(key string, value []byte) error {
	_ = s.disk.Write(key, value)
	return s.Store.Write(key, value)
}

func (s slowStore) Delete(key string) error {
	_ = s.disk.Delete(key)
	return s.Store.Delete(key)
}

func (s slowStore) Keys() ([]string, error) {
	_, _ = s.disk.Keys()
	return s.Store.Keys()
}

// A checkpoint that cannot be written holds up its pod, and nobody else.
func TestPlacementDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.start()
		old := owns("old", "1")
		n.run(old)
		disk := &agenttest.HungStore{}
		n.store = slowStore{disk, part.OpenStore(n.dir, nil)}
		n.join()
		restored := make(chan error)
		go func() { restored <- n.p.Restore(t.Context()) }()
		disk.Release()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		*disk = agenttest.HungStore{} // hangs again
		n.p.Adopt(old)

		a := owns("a", "2")
		r, no := n.reserve(a)
		if no != nil {
			t.Fatal(no)
		}
		hung := make(chan error, 3)
		go func() { hung <- n.p.Prepare(t.Context(), a, nil) }()
		n.remove(old)
		go func() { hung <- n.p.Stopped(t.Context(), part.RefOf(old)) }()
		synctest.Wait()
		if disk.Calls() != 2 {
			t.Fatalf("%d calls hang, want 2", disk.Calls())
		}
		// A second one for the same pod waits for its turn, until its context ends.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.p.Prepare(ctx, a, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		n.run(shares("web"))
		n.wantCPUs(map[string]string{"web": "0-1,4-7"}) // a's are its own from the decision on
		b := owns("b", "1")
		rb, no := n.reserve(b)
		if no != nil {
			t.Fatal(no)
		}
		rb.Release()
		r.Release()
		otherHooks(t, n, a)
		n.p.Adopt(b)
		if !n.p.FitsWithout(owns("c", "6"), nil) {
			t.Error("a has not given its CPUs back")
		}
		go func() { hung <- n.p.Sweep(t.Context(), func(types.UID) bool { return true }) }()
		synctest.Wait()
		n.run(shares("db"))
		disk.Release()
		for range 3 {
			if err := <-hung; err != nil {
				t.Error(err)
			}
		}
		if err := n.p.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
			t.Error(err)
		}
		if got := n.checkpoints(); len(got) > 0 {
			t.Errorf("checkpoints %v", got)
		}
	})
}

// A release that the loop causes leaves the disk alone, and a checkpoint is
// removed only if the pod has nothing by then.
func TestReleaseOnTheLoop(t *testing.T) {
	n := newNode(t)
	s := &checkpointtest.Disk{}
	n.store = s
	n.start()
	a := owns("a", "2")
	r, no := n.reserve(a)
	if no != nil {
		t.Fatal(no)
	}
	if err := n.p.Prepare(t.Context(), a, nil); err != nil || len(s.Values()) != 1 {
		t.Fatal(err, s.Values())
	}
	known := func(types.UID) bool { return true }
	s.Calls()
	r.Release()
	if calls := s.Calls(); len(calls) > 0 {
		t.Errorf("the disk was asked: %q", calls)
	}
	r, _ = n.reserve(a) // and is back before anything is swept
	if err := n.p.Sweep(t.Context(), known); err != nil || len(s.Values()) != 1 {
		t.Error(err, s.Values())
	}
	r.Release()
	s.Fault(checkpointtest.Fail(errors.New("full")))
	if err := n.p.Sweep(t.Context(), known); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("error %v", err)
	}
	s.Fault(nil)
	if err := n.p.Sweep(t.Context(), known); err != nil || len(s.Values()) > 0 {
		t.Error(err, s.Values())
	}
}

// A write that fails may have written: the checkpoint is removed with the pod.
func TestWriteFails(t *testing.T) {
	n := newNode(t)
	s := &checkpointtest.Disk{}
	n.store = s
	n.start()
	a := owns("a", "2")
	if _, no := n.reserve(a); no != nil {
		t.Fatal(no)
	}
	s.Fault(checkpointtest.Fail(errors.New("full")))
	if err := n.p.Prepare(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("error %v", err)
	}
	if err := n.p.Stopped(t.Context(), part.RefOf(a)); err != nil {
		t.Error(err) // that is no matter of the pod's
	}
	s.Fault(nil)
	s.Put("uid-a", "torn")
	if err := n.p.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil || len(s.Values()) > 0 {
		t.Error(err, s.Values())
	}
}

// A store that cannot be listed is told of, and what runs counts.
func TestStoreFails(t *testing.T) {
	n := newNode(t)
	n.start()
	a := owns("a", "2")
	n.run(a)
	broken := &checkpointtest.Disk{}
	broken.Fault(checkpointtest.Fail(errors.New("broken")))
	n.store = broken
	n.join()
	if err := n.p.Restore(t.Context()); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("error %v", err)
	}
	n.p.Adopt(a)
	if r, no := n.reserve(owns("b", "6")); no == nil {
		t.Errorf("%v", r)
	}
}

// Without a store, what runs says who has what.
func TestNoStore(t *testing.T) {
	n := newNode(t)
	n.start()
	a := owns("a", "2")
	n.run(a)
	for range 2 {
		p, err := resources.NewPlacement(resources.PlacementConfig{Fit: n.fit, Runtime: n.rt})
		if err != nil {
			t.Fatal(err)
		}
		n.p, n.host = p, agenttest.NewHost(t)
		if err := errors.Join(p.Join(n.host), p.Restore(t.Context())); err != nil {
			t.Fatal(err)
		}
		p.Adopt(a)
		b := owns("b", "2")
		n.run(b)
		n.wantCPUs(map[string]string{"a": "1-2", "b": "3-4"})
		n.end(b)
	}
}
