package resources_test

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/internal/devicetest"
	"github.com/nodewright/nodewright/podspec"
)

// hooks calls every hook that must not wait for a disk.
func hooks(t *testing.T, n *devicesNode, runs, ends *v1.Pod) {
	t.Helper()
	begin := time.Now()
	n.Adopt(runs)
	n.Waits(newDevicesPod("new", "main=1"))
	n.Resources()
	n.Explain(runs)
	n.Report(runs, &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main"}}})
	if err := n.Compile(runs, &podspec.Input{}); err != nil {
		t.Error(err)
	}
	if r, no := n.Reserve(t.Context(), part.Request{Pod: newDevicesPod("plain", "main")}); r != nil || no != nil {
		t.Errorf("a pod without devices: %v, %v", r, no)
	}
	if _, err := n.BeforeCreate(t.Context(), part.Container{Pod: newDevicesPod("plain", "main"), Name: "main"}, nil); err != nil {
		t.Error(err)
	}
	if err := n.Stopped(t.Context(), part.RefOf(ends)); err != nil {
		t.Error(err)
	}
	if err := n.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took != 0 {
		t.Errorf("the hooks waited %v for the disk", took)
	}
}

// The disk hangs at the start: pods that ask for devices wait, and nobody waits
// for the disk. What happened meanwhile is caught up on.
func TestDiskHangsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs, ends := &checkpointtest.Disk{}, newDevicesPod("runs", "main=1"), newDevicesPod("ends", "main=1")
		n := devicesStart(t, store)
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b")...))
		n.wantAdmitted(runs, ends)
		n.stop()

		free := make(chan struct{})
		store.Fault(checkpointtest.Hang(free, "keys"))
		n = devicesJoin(t, store)
		n.run(runs)
		n.run(ends)
		restored := make(chan error, 1)
		go func() { restored <- n.Restore(t.Context()) }()
		synctest.Wait()
		hooks(t, n, runs, ends)
		if n.Waits(newDevicesPod("new", "main=1")) {
			t.Error("a pod that is told to wait has nobody to wait for")
		}
		wantWait(t, n.admit(newDevicesPod("new", "main=1")), "are not known yet")
		main := part.Container{Pod: runs, Name: "main"}
		if _, err := n.BeforeCreate(t.Context(), main, nil); err == nil {
			t.Error("a container was made without its devices")
		}
		if n.FreshDevices() {
			t.Error("devices are fresh before anything is known of them")
		}
		select {
		case <-n.Ready():
			t.Error("ready before Restore was done")
		default:
		}
		n.wantCalls()

		close(free)
		if err := <-restored; err != nil {
			t.Error(err)
		}
		<-n.Ready()
		n.wantCalls("readmit", "retry runs")
		if n.has("runs", "main") != "a" || n.has("ends", "main") != "" {
			t.Errorf("one that runs has %q, one that ended %q", n.has("runs", "main"), n.has("ends", "main"))
		}
		n.stop()
	})
}

// The disk hangs at the start for longer than its calls last: the devices of what runs
// are nobody else's.
func TestDevicesDiskComesBackLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, runs := &checkpointtest.Disk{}, newDevicesPod("runs", "main=1")
		n := devicesStart(t, store)
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
		n.wantAdmitted(runs)
		n.stop()

		late := 3 // calls that are given up
		store.Fault(func(call, _ string) error {
			if call != "keys" || late == 0 {
				return nil
			}
			late--
			return os.ErrDeadlineExceeded
		})
		n = devicesJoin(t, store)
		n.run(runs)
		begin, restored := time.Now(), make(chan error, 1)
		go func() { restored <- n.Restore(t.Context()) }()
		synctest.Wait()
		wantWait(t, n.admit(newDevicesPod("new", "main=1")), "are not known yet")
		if err := <-restored; err != nil || time.Since(begin) != 7*time.Second {
			t.Errorf("restored after %v, %v", time.Since(begin), err)
		}
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a")...))
		if err := n.admit(newDevicesPod("new", "main=1")); err == nil || n.has("runs", "main") != "a" {
			t.Errorf("%v, one that runs has %q", err, n.has("runs", "main"))
		}
		n.stop()
	})
}

// The disk hangs while a pod is given devices: that pod waits, and others are
// admitted, start and end.
func TestDiskHangsInCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkpointtest.Disk{}
		n := devicesStart(t, store)
		n.offer(thing, devicetest.NewPlugin(devicetest.Healthy("a", "b", "c")...))
		runs, ends, slow := newDevicesPod("runs", "main=1"), newDevicesPod("ends", "main=1"), newDevicesPod("slow", "main=1")
		n.wantAdmitted(runs, ends)
		free := make(chan struct{})
		store.Fault(checkpointtest.Hang(free, "write"))
		store.Calls()
		committed := make(chan error, 1)
		go func() { committed <- n.admit(slow) }()
		synctest.Wait()
		if calls := store.Calls(); len(calls) != 1 {
			t.Fatalf("want one call that hangs: %q", calls)
		}
		hooks(t, n, runs, ends)
		if !n.Waits(newDevicesPod("new", "main=1")) {
			t.Error("another pod is decided on off the loop")
		}
		if _, err := n.BeforeCreate(t.Context(), part.Container{Pod: runs, Name: "main"}, nil); err != nil {
			t.Error(err)
		}
		if c := n.Resources()[thing]; c.Used != 2 {
			t.Errorf("%+v, want one that runs and one that is being written", c)
		}
		close(free)
		if err := <-committed; err != nil || n.has("slow", "main") != "c" {
			t.Errorf("%v, devices %q", err, n.has("slow", "main"))
		}
		n.stop()
	})
}
