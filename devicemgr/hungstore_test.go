package devicemgr_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/devicemgr"
)

// hang has the disk hang in some calls, until end is called.
func hang(store *checkpointtest.Disk, calls ...string) (end func()) {
	free := make(chan struct{})
	store.Fault(checkpointtest.Hang(free, calls...))
	return func() {
		store.Fault(nil)
		close(free)
	}
}

// While the disk hangs, whoever asks about other pods, or gives devices back, is
// answered at once.
func TestHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := start(t, devicemgr.Config{Store: store}, nil)
		synctest.Wait()
		if err := l.Offer(t.Context(), gpu, newPlugin(healthyDevices("a", "b", "c")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		old, slow := pod("old", "main=1"), pod("slow", "main=1")
		l.admit(t, old)
		end := hang(store, "write", "delete")
		slowEnds := make(chan error, 1)
		go func() { slowEnds <- l.Admit(t.Context(), slow) }()
		synctest.Wait() // its record is being written

		begin := time.Now()
		if a, err := l.Begin(t.Context(), old); err != nil || !a.Settled() {
			t.Errorf("begin of a pod with devices: %v", err)
		}
		if _, err := l.Begin(t.Context(), pod("new", "main=1")); err != nil {
			t.Errorf("begin of a pod without: %v", err)
		}
		if _, err := l.Attachment(old, "main"); err != nil || l.has("old", "main") != "a" || len(l.Health("old", "main")) != 1 {
			t.Errorf("attachment: %v, devices %q", err, l.has("old", "main"))
		}
		l.Retain(func(uid types.UID) bool { return uid == "old" || uid == "slow" })
		l.Release("old")
		l.Release("slow")
		synctest.Wait()
		if c := l.Capacity()[gpu]; c.Used != 1 || c.Free != 2 {
			t.Errorf("%+v, want the device of the pod that is being written used", c)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("waited %v for the disk", took)
		}

		end()
		if err := <-slowEnds; err == nil {
			t.Error("a pod that was released while it was written was admitted")
		}
		synctest.Wait()
		if used := l.Capacity()[gpu].Used; used != 0 {
			t.Errorf("%d devices used by nobody", used)
		}
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{"resources"}) {
			t.Errorf("stored %v, want the names alone", keys)
		}
		l.stop()
	})
}

// A pod that is released during a call of its plugin, and whose record cannot be deleted yet,
// blocks no other pod.
func TestHungDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := start(t, devicemgr.Config{Store: store}, nil)
		synctest.Wait()
		p := newPlugin(healthyDevices("a")...)
		p.allocate = func(context.Context, []string) (devicemgr.Attachment, error) {
			l.Release("p")
			return devicemgr.Attachment{}, nil
		}
		if err := l.Offer(t.Context(), gpu, p); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end := hang(store, "delete")
		ends := make(chan error, 1)
		go func() { ends <- l.Admit(t.Context(), pod("p", "main=1")) }()
		synctest.Wait()
		if used := l.Capacity()[gpu].Used; used != 0 { // asked while the deletion hangs
			t.Errorf("%d devices used", used)
		}
		end()
		if err := <-ends; err == nil {
			t.Error("a pod that was released meanwhile was admitted")
		}
		l.stop()
	})
}

// A released pod that is admitted again while its old record waits to be deleted
// keeps its new one; and deletions that hang end with the disk's trouble.
func TestReleaseIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		l := start(t, devicemgr.Config{Store: store}, nil)
		synctest.Wait()
		if err := l.Offer(t.Context(), gpu, newPlugin(healthyDevices("a")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p := pod("p", "main=1")
		l.admit(t, p)
		end := hang(store, "write", "delete")
		l.Release("p")
		again := make(chan error, 1)
		go func() { again <- l.Admit(t.Context(), p) }()
		synctest.Wait()
		end()
		if err := <-again; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{"pod.p", "resources"}) || l.has("p", "main") != "a" {
			t.Errorf("stored %v, devices %q; want the record of the second admission", keys, l.has("p", "main"))
		}
		store.Fault(checkpointtest.Fail(errors.New("disk is broken"), "write", "delete"))
		l.Release("p")
		synctest.Wait()
		if used := l.Capacity()[gpu].Used; used != 0 {
			t.Errorf("%d devices used, though their record alone could not be deleted", used)
		}
		l.stop()
	})
}

// lateWrites is a store on a disk that executes writes after the caller has given up.
type lateWrites struct {
	*checkpointtest.Disk
	late bool
	todo []func()
}

func (s *lateWrites) Write(key string, value []byte) error {
	if s.late {
		s.todo = append(s.todo, func() { _ = s.Disk.Write(key, value) })
		return os.ErrDeadlineExceeded
	}
	return s.Disk.Write(key, value)
}

// Late writes are corrected: a pod that was not admitted has no record, and the record of an
// admitted one has its devices.
func TestLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateWrites{Disk: &checkpointtest.Disk{}}
		l := start(t, devicemgr.Config{Store: store}, nil)
		synctest.Wait()
		if err := l.Offer(t.Context(), gpu, newPlugin(healthyDevices("a", "b")...)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		has, never := pod("has", "main=1"), pod("never", "main=1")
		l.admit(t, has)
		before, err := store.Read("pod.has")
		if err != nil {
			t.Fatal(err)
		}
		store.late = true
		more := pod("has", "main=1", "other=1")
		for _, p := range []*v1.Pod{never, more} {
			if err := l.Admit(t.Context(), p); err == nil {
				t.Errorf("%s was admitted, and its record was not written", p.Name)
			}
		}
		for _, do := range store.todo {
			do()
		}
		store.late = false
		l.Retain(func(uid types.UID) bool { return uid == "has" })
		if keys, _ := store.Keys(); !slices.Equal(keys, []string{"pod.has", "resources"}) {
			t.Errorf("stored %v", keys)
		}
		if after, err := store.Read("pod.has"); err != nil || string(after) != string(before) {
			t.Errorf("the record says %s, %v; want %s", after, err, before)
		}
		if l.has("has", "main") != "a" || l.Capacity()[gpu].Used != 1 {
			t.Errorf("has %q, %d used", l.has("has", "main"), l.Capacity()[gpu].Used)
		}
		l.stop()
	})
}
