package volumemgr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// A device that MountDevice only said to have mounted is mounted again, at the pace of the
// tries to set up.
func TestDeviceThatIsNotMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &refreshedDisk{}
		r := start(t, plugintest.New(), func(c *volumemgr.Config) {
			d.Node = c.Files.(*plugintest.Node)
			c.Plugins = []volumemgr.Plugin{d}
		})
		r.claims["data"] = localPV("pv", nil)
		d.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if op == "setup" && d.Calls("mountdevice") < 3 {
				return fmt.Errorf("publish: %w", volumemgr.ErrNoDevice)
			}
			return nil
		}
		_, _ = r.Mount(t.Context(), newPod("u1", claim("x", "data")))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.state("u1", "pv"); got != volumemgr.StateMounted {
			t.Errorf("state = %s, want %s", got, volumemgr.StateMounted)
		}
		if mounts, tries := d.Calls("mountdevice"), d.Calls("setup"); mounts != 3 || tries != 3 {
			t.Errorf("%d calls of MountDevice and %d of SetUp, want 3 and 3", mounts, tries)
		}
		r.unmount("u1")
		synctest.Wait()
		if left, _ := r.node.Mounts("/"); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
	})
}

// The kubelet's rows: how a device or a volume that could not be mounted is
// taken down once its pod goes.
func TestTakenDownAfterFailure(t *testing.T) {
	slow := volumemgr.ErrUncertain
	for _, tc := range []struct {
		name     string
		op       string
		errs     []error // of the first calls; the last is repeated
		remount  bool    // they come after a success
		state    volumemgr.State
		teardown int
		unmount  int // of the device
	}{
		{name: "MountDevice times out", op: "mountdevice", errs: []error{slow}, state: volumemgr.StateWanted, unmount: 1},
		{name: "MountDevice fails", op: "mountdevice", errs: []error{errServer}, state: volumemgr.StateWanted},
		{name: "MountDevice times out, then fails", op: "mountdevice", errs: []error{slow, errServer}, state: volumemgr.StateWanted},
		{name: "SetUp times out", op: "setup", errs: []error{slow}, state: volumemgr.StateUncertain, teardown: 1, unmount: 1},
		{name: "SetUp fails", op: "setup", errs: []error{errServer}, state: volumemgr.StateWanted, unmount: 1},
		{name: "SetUp times out, then fails", op: "setup", errs: []error{slow, errServer}, state: volumemgr.StateWanted, unmount: 1},
		{name: "a remount times out", op: "setup", errs: []error{slow}, remount: true, state: volumemgr.StateMounted, teardown: 1, unmount: 1},
		{name: "a remount fails", op: "setup", errs: []error{errServer}, remount: true, state: volumemgr.StateMounted, teardown: 1, unmount: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &refreshedDisk{}
				r := start(t, plugintest.New(), func(c *volumemgr.Config) {
					d.Node = c.Files.(*plugintest.Node)
					c.Plugins = []volumemgr.Plugin{d}
				})
				r.claims["data"] = localPV("pv", nil)
				var mu sync.Mutex
				errs := slices.Clone(tc.errs)
				failing := !tc.remount
				d.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
					mu.Lock()
					defer mu.Unlock()
					if op != tc.op || !failing {
						return nil
					}
					err := errs[0]
					if len(errs) > 1 {
						errs = errs[1:]
					}
					return err
				}
				pod := newPod("u1", claim("x", "data"))
				_, err := r.Mount(t.Context(), pod)
				if (err == nil) != tc.remount {
					t.Fatalf("Mount = %v", err)
				}
				if tc.remount {
					mu.Lock()
					failing = true
					mu.Unlock()
					r.Changed(diskRef)
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if got := r.state("u1", "pv"); got != tc.state {
					t.Errorf("state = %s, want %s", got, tc.state)
				}
				r.unmount("u1")
				synctest.Wait()
				if got := d.Calls("teardown"); got != tc.teardown {
					t.Errorf("TearDown calls = %d, want %d", got, tc.teardown)
				}
				if got := d.Calls("unmountdevice"); got != tc.unmount {
					t.Errorf("UnmountDevice calls = %d, want %d", got, tc.unmount)
				}
				if left, _ := r.node.Mounts("/"); len(left) > 0 {
					t.Errorf("still mounted: %v", left)
				}
			})
		})
	}
}

// refreshedDisk is a disk whose volumes are mounted again when diskRef changes.
type refreshedDisk struct{ plugintest.FakeDisk }

var diskRef = volumemgr.Ref{Kind: "Disk", Name: "data"}

func (*refreshedDisk) Sources(*volumemgr.Spec, *v1.Pod) []volumemgr.Ref {
	return []volumemgr.Ref{diskRef}
}
func (*refreshedDisk) Stale(*volumemgr.Spec, *v1.Pod, *v1.Pod) bool { return false }

// Two pods on one device: mounted once, unmounted after the last.
func TestDeviceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.claims["data"] = localPV("pv", nil)
		r.mount(newPod("u1", claim("x", "data")))
		r.mount(newPod("u2", claim("x", "data")))
		if err := r.node.Write(where("u1", "fake-disk", "pv")+"/file", "shared"); err != nil {
			t.Fatal(err)
		}
		if got, _ := r.node.Read(where("u2", "fake-disk", "pv") + "/file"); got != "shared" {
			t.Error("the pods do not share the disk")
		}
		r.unmount("u1")
		synctest.Wait()
		if got := r.disk.Calls("unmountdevice"); got != 0 {
			t.Errorf("UnmountDevice calls while a pod uses it = %d", got)
		}
		r.unmount("u2")
		synctest.Wait()
		if m, u := r.disk.Calls("mountdevice"), r.disk.Calls("unmountdevice"); m != 1 || u != 1 {
			t.Errorf("calls = %d MountDevice, %d UnmountDevice; want one of each", m, u)
		}
		if got := r.node.Content("disk-pv")["/file"]; got != "shared" {
			t.Errorf("the disk's file = %q, want it kept", got)
		}
		if left, _ := r.node.Mounts("/"); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
	})
}

// Operations on one device exclude each other as the table of keys says.
func TestOneOperationPerDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.claims["data"], r.claims["other"] = localPV("pv", nil), localPV("pv2", nil)
		var mu sync.Mutex
		running := map[string][]string{} // by volume
		r.disk.Hook = func(_ context.Context, op string, v *volumemgr.Volume) error {
			mu.Lock()
			for _, other := range running[v.Name] {
				if op != "teardown" || other != "teardown" {
					t.Errorf("%s of %s while %s runs", op, v.Name, other)
				}
			}
			running[v.Name] = append(running[v.Name], op)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			i := slices.Index(running[v.Name], op)
			running[v.Name] = slices.Delete(running[v.Name], i, i+1)
			return nil
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for _, p := range []*v1.Pod{
			newPod("u1", claim("x", "data")), newPod("u2", claim("x", "data")), newPod("u3", claim("x", "other")),
		} {
			wg.Go(func() { r.mount(p) })
		}
		wg.Wait()
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v, want 3s: one device and two set-ups in a row", took)
		}
		begin = time.Now()
		wg.Go(func() { r.unmount("u1") })
		wg.Go(func() { r.unmount("u2") })
		wg.Wait()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want 1s: tear-downs for two pods side by side", took)
		}
		r.unmount("u3")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if left, _ := r.node.Mounts("/"); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
	})
}

// The pod's Mount hears of the device's failure, and of its back-off.
func TestDeviceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), nil)
		r.claims["data"] = localPV("pv", nil)
		r.disk.Hook = func(_ context.Context, op string, _ *volumemgr.Volume) error {
			if op == "mountdevice" {
				return errServer
			}
			return nil
		}
		pod := newPod("u1", claim("x", "data"))
		for range 2 {
			_, err := r.Mount(t.Context(), pod)
			var ve *volumemgr.Error
			if !errors.Is(err, errServer) || !errors.As(err, &ve) || ve.RetryAt().IsZero() {
				t.Errorf("Mount = %v", err)
			}
		}
		if got := r.disk.Calls("mountdevice"); got != 1 {
			t.Errorf("MountDevice calls = %d, want none within the back-off", got)
		}
		why := r.Why("u1")[0]
		if why.Failures != 1 || why.First != errServer.Error() || why.Next.IsZero() {
			t.Errorf("Why = %+v", why)
		}
		if len(r.events.all) != 1 || !strings.Contains(r.events.all[0], `FailedMount MountVolume.MountDevice failed for volume "pv" : no such server`) {
			t.Errorf("events = %q", r.events.all)
		}
	})
}

func TestBlockDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, plugintest.New(), func(c *volumemgr.Config) {
			c.Plugins = []volumemgr.Plugin{&rawDisk{plugintest.FakeDisk{Fake: plugintest.Fake{Node: c.Files.(*plugintest.Node)}}}}
		})
		r.claims["data"] = localPV("pv", block)
		ms := r.mount(mapped(newPod("u1", claim("x", "data"))))
		if m := ms["x"]; !m.Block || m.Path != "/dev/pv" {
			t.Errorf("mount = %+v", m)
		}
		link := root + "/pods/u1/volumeDevices/kubernetes.io~fake-disk/pv"
		if to, err := r.node.Readlink(link); to != "/dev/pv" || err != nil {
			t.Errorf("link = %q, %v", to, err)
		}
		if len(r.events.all) != 1 || !strings.HasPrefix(r.events.all[0], "Normal SuccessfulMountVolume") {
			t.Errorf("events = %q", r.events.all)
		}
		r.unmount("u1")
		if got := r.node.Paths(root + "/pods/u1"); len(got) > 0 {
			t.Errorf("left on disk: %v", got)
		}
	})
}

// rawDisk has no devices to mount.
type rawDisk struct{ plugintest.FakeDisk }

func (*rawDisk) Device(*volumemgr.Volume) (volumemgr.Device, error) { return volumemgr.Device{}, nil }
