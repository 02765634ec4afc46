package resources_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/podruntime"
)

func knows(uids ...types.UID) func(types.UID) bool {
	return func(uid types.UID) bool { return slices.Contains(uids, uid) }
}

// What was allocated, and what waits, outlives the agent; so does what was asked
// for while it was away.
func TestOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := part.OpenStore(t.TempDir()+"/grants", nil)
		n := restored(t, store)
		for _, name := range []string{"a", "b", "c"} {
			pod := resizeSized(name, "1Gi")
			n.Recall(pod, nothing(pod))
			n.edit(pod)
		}
		a, b, c := resizeSized("a", "2Gi"), resizeSized("b", "4Gi"), resizeSized("c", "1Gi")
		for _, pod := range []*v1.Pod{a, b, c} {
			n.edit(pod)
			n.prepare(pod)
		}
		n.stop()
		synctest.Wait()
		if keys, err := store.Keys(); err != nil || !slices.Equal(keys, []string{"uid-a", "uid-b"}) {
			t.Errorf("records of %v, %v; want those of the pods that were resized or wait", keys, err)
		}
		raw, err := store.Read("uid-b")
		if want := `{"containers":{"c":{"limits":{"memory":"1Gi"},"requests":{"memory":"1Gi"}}}}`; err != nil || string(raw) != want {
			t.Errorf("record %s, %v; want %s", raw, err, want)
		}

		n = restored(t, store)
		a, c = resizeSized("a", "3Gi"), resizeSized("c", "2Gi") // while it was away
		n.host.SetPods(a, b, c)
		for _, pod := range []*v1.Pod{a, b, c} {
			n.Recall(pod, runs(pod, "1Gi")) // a was resized in place
		}
		n.wantRuns(n.Allocated(a), "2Gi")
		n.wantRuns(n.Allocated(b), "1Gi")
		n.wantRuns(n.Allocated(c), "1Gi")
		n.Housekeep(nil)
		for _, pod := range []*v1.Pod{a, b, c} {
			if got := n.conditions(pod.UID); !strings.HasPrefix(got, "PodResizePending Deferred") {
				t.Errorf("conditions of %s: %s", pod.Name, got)
			}
		}
		if err := n.Sweep(t.Context(), knows("uid-b")); err != nil {
			t.Error(err)
		}
		if keys, err := store.Keys(); err != nil || !slices.Equal(keys, []string{"uid-b"}) {
			t.Errorf("records of %v, %v", keys, err)
		}
	})
}

// A record that is damaged or cannot be read counts as missing.
func TestUnreadableRecords(t *testing.T) {
	d := &checkpointtest.Disk{}
	d.Put("uid-a", "garbage")
	d.Put("uid-b", `{"containers":{}}`)
	d.Fault(checkpointtest.Fail(errors.New("input/output error"), "uid-b"))
	n := restored(t, d)
	for _, name := range []string{"a", "b"} {
		pod := resizeSized(name, "2Gi")
		n.Recall(pod, runs(pod, "1Gi"))
		n.wantRuns(n.Allocated(pod), "1Gi")
	}
}

// A disk that hangs or fails at the start for longer than its calls last keeps resizes
// waiting: what pods were allocated is not forgotten.
func TestResizeDiskComesBackLate(t *testing.T) {
	for _, key := range []string{"", "uid-a"} {
		for _, fault := range []error{os.ErrDeadlineExceeded, context.DeadlineExceeded, syscall.EIO} {
			if key != "" && errors.Is(fault, syscall.EIO) {
				continue // it counts as missing
			}
			t.Run(key+" "+fault.Error(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { comesBackLate(t, key, fault) }) })
		}
	}
}

func comesBackLate(t *testing.T, key string, fault error) {
	d := &checkpointtest.Disk{}
	d.Put("uid-a", `{"containers":{"c":{"limits":{"memory":"2Gi"},"requests":{"memory":"2Gi"}}}}`)
	d.Fault(checkpointtest.Fail(fault, key))
	n := resizeStart(t, d)
	a, fresh := resizeSized("a", "4Gi"), resizeSized("fresh", "1Gi")
	n.host.SetPods(a, fresh)
	n.Recall(a, runs(a, "1Gi"))
	n.Recall(fresh, nothing(fresh))
	begin, restored := time.Now(), make(chan error, 1)
	go func() { restored <- n.Restore(t.Context()) }()
	time.Sleep(5 * time.Second)
	n.wantRuns(n.edit(a), "1Gi")
	n.wantRuns(n.edit(resizeSized("fresh", "2Gi")), "1Gi")
	n.prepare(fresh)
	d.Fault(nil)
	if err := <-restored; err != nil || time.Since(begin) != 7*time.Second {
		t.Errorf("restored after %v, %v", time.Since(begin), err)
	}
	n.wantRuns(n.Allocated(a), "2Gi")
	n.Housekeep(nil)
	if got := n.conditions(a.UID); !strings.HasPrefix(got, "PodResizePending Deferred") {
		t.Errorf("conditions: %s", got)
	}
	n.stop()
}

// A record that cannot be written keeps containers from being changed, and is
// written again.
func TestResizeWriteFails(t *testing.T) {
	d := &checkpointtest.Disk{}
	n := restored(t, d)
	a := resizeSized("a", "1Gi")
	n.Recall(a, nothing(a))
	a = resizeSized("a", "2Gi")
	n.edit(a)
	n.host.Calls()
	d.Fault(checkpointtest.Fail(errors.New("no space left on device"), "uid-a"))
	for range 2 {
		err := n.Prepare(t.Context(), a, nil)
		var named interface{ Reason() string }
		if !errors.As(err, &named) || named.Reason() != podruntime.ReasonResize {
			t.Errorf("error %v", err)
		}
	}
	n.wantConditions(a.UID, "PodResizeInProgress Error write allocation record: no space left on device")
	n.wantCalls("event default/a Warning ResizeError: write allocation record: no space left on device")
	d.Fault(nil)
	n.prepare(a)
	if d.Value("uid-a") == "" {
		t.Error("nothing was written")
	}
}

// The record of a pod that only waits is written beside its syncs.
func TestWaitingPodIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		n := restored(t, d)
		a := resizeSized("a", "1Gi")
		n.Recall(a, nothing(a))
		n.edit(resizeSized("a", "5Gi"))
		d.Fault(checkpointtest.Fail(errors.New("no space left on device"), "uid-a"))
		n.prepare(a)
		synctest.Wait()
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "uid-a"))
		n.prepare(a)
		n.prepare(a)
		synctest.Wait()
		if d.Value("uid-a") != "" {
			t.Error("written on a disk that hangs")
		}
		// Once it is allocated something, that has to be written, too.
		a = resizeSized("a", "2Gi")
		n.edit(a)
		done := make(chan error)
		go func() { done <- n.Prepare(t.Context(), a, nil) }()
		synctest.Wait()
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := d.Value("uid-a"); !strings.Contains(got, "2Gi") {
			t.Errorf("record %s", got)
		}
	})
}

// While writes hang the loop goes on, and so do other pods; the pod waits for as
// long as its context lasts.
func TestWritesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		n := restored(t, d)
		a, b := resizeSized("a", "1Gi"), resizeSized("b", "1Gi")
		for _, pod := range []*v1.Pod{a, b} {
			n.Recall(pod, nothing(pod))
			n.edit(pod)
		}
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "uid-a"))
		a, b = resizeSized("a", "2Gi"), resizeSized("b", "2Gi")
		n.edit(a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Prepare(ctx, a, nil) }()
		synctest.Wait()

		n.edit(b)
		n.prepare(b)
		if d.Value("uid-b") == "" {
			t.Error("the record of the other pod was not written")
		}
		a = resizeSized("a", "1536Mi")
		if n.edit(a) != a {
			t.Error("nothing is decided while a record is being written")
		}
		n.Recall(a, nothing(a))
		n.Housekeep(nil)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		// The next sync waits for the write, and then for that of the newest.
		go func() { done <- n.Prepare(t.Context(), a, nil) }()
		synctest.Wait()
		close(hang)
		if err := <-done; err != nil || !strings.Contains(d.Value("uid-a"), "1536Mi") {
			t.Errorf("record %s, %v", d.Value("uid-a"), err)
		}
	})
}

// While the disk hangs after a restart of the agent the hooks of the loop return
// and pods go on; that which asks for something else than its containers were
// made with waits.
func TestResizeDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &agenttest.HungStore{}
		n := resizeStart(t, store)
		done := make(chan error, 2)
		go func() { done <- n.Restore(t.Context()) }()
		synctest.Wait()

		same, edited, fresh := resizeSized("same", "1Gi"), resizeSized("edited", "2Gi"), resizeSized("fresh", "1Gi")
		n.Recall(same, runs(same, "1Gi"))
		n.Recall(edited, runs(edited, "1Gi"))
		n.Recall(fresh, nothing(fresh))
		n.wantRuns(n.Allocated(edited), "1Gi")
		n.wantRuns(n.edit(edited), "1Gi")
		n.wantRuns(n.edit(resizeSized("fresh", "2Gi")), "1Gi")
		n.Housekeep(nil)
		n.wantConditions(edited.UID, "")
		n.prepare(same)
		n.prepare(fresh)
		if got := n.Explain(edited); got != "its resources (allocation records are being read)" {
			t.Errorf("explained by %q", got)
		}
		go func() { done <- n.Sweep(t.Context(), knows(same.UID, edited.UID, fresh.UID)) }()
		synctest.Wait()
		if err := n.Stopped(t.Context(), part.RefOf(same)); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Prepare(ctx, n.Allocated(edited), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		n.wantCalls()

		store.Release()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		n.wantCalls("housekeep")
		n.Housekeep(nil)
		n.wantCalls("event default/edited Normal ResizeStarted: Pod resize started", "update default/edited",
			"event default/fresh Normal ResizeStarted: Pod resize started", "update default/fresh")
		n.prepare(edited)
	})
}

// A record that is read late is the pod's: what its containers were made with is
// taken from none that was resized in place.
func TestRecordIsReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		d.Put("uid-a", `{"containers":{"c":{"limits":{"memory":"2Gi"},"requests":{"memory":"2Gi"}}}}`)
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "keys"))
		n := resizeStart(t, d)
		restored, prepared := make(chan error), make(chan error)
		go func() { restored <- n.Restore(t.Context()) }()
		a := resizeSized("a", "2Gi")
		n.host.SetPods(a)
		n.Recall(a, runs(a, "1Gi"))
		stale := n.Allocated(a)
		go func() { prepared <- n.Prepare(t.Context(), stale, nil) }()
		synctest.Wait()
		close(hang)
		if err := <-restored; err != nil {
			t.Error(err)
		}
		for _, err := range []error{<-prepared, n.Prepare(t.Context(), stale, nil)} {
			if err == nil {
				t.Error("a sync that goes by what the container was made with goes on")
			}
		}
		n.wantCalls() // nothing is to be decided
		if n.Allocated(a) != a {
			t.Error("the record was not applied")
		}
		n.prepare(a)
		n.prepare(a)
	})
}

// The record of a pod that comes back while it is removed is written anew.
func TestPodComesBackDuringTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checkpointtest.Disk{}
		n := restored(t, d)
		a := resizeSized("a", "1Gi")
		come := func() {
			n.Recall(a, nothing(a))
			n.edit(a)
			n.edit(resizeSized("a", "2Gi"))
		}
		come()
		n.prepare(a)
		hang := make(chan struct{})
		d.Fault(checkpointtest.Hang(hang, "uid-a"))
		done := make(chan error, 2)
		go func() { done <- n.Sweep(t.Context(), knows()) }()
		synctest.Wait()
		come()
		go func() { done <- n.Prepare(t.Context(), resizeSized("a", "2Gi"), nil) }()
		synctest.Wait()
		close(hang)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := d.Value("uid-a"); !strings.Contains(got, "2Gi") {
			t.Errorf("record %q", got)
		}
	})
}

// A record that cannot be removed goes with the next sweep.
func TestDeleteFails(t *testing.T) {
	d := &checkpointtest.Disk{}
	d.Put("uid-a", `{"containers":{}}`)
	d.Put("uid-b", `{"containers":{}}`)
	n := restored(t, d)
	d.Fault(checkpointtest.Fail(errors.New("read-only file system"), "uid-a"))
	if err := n.Sweep(t.Context(), knows()); err != nil {
		t.Error(err)
	}
	if d.Value("uid-a") == "" || d.Value("uid-b") != "" {
		t.Errorf("records %v", d.Value("uid-a"))
	}
	d.Fault(nil)
	if err := n.Sweep(t.Context(), knows()); err != nil || d.Value("uid-a") != "" {
		t.Errorf("records %v, %v", d.Value("uid-a"), err)
	}
}
