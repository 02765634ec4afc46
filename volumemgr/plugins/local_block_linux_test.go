package plugins

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/loopdev"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// block is a volume of volumeMode Block.
func (r *localRig) block(uid, path string) *volumemgr.Volume {
	v := r.volume(uid, path)
	mode := v1.PersistentVolumeBlock
	v.Spec.PersistentVolume.Spec.VolumeMode = &mode
	v.UID = types.UID(uid)
	v.Path = filepath.Join(r.root, "pods", uid, "volumeDevices", escaped, "pv")
	return v
}

// memoryLoops are loop devices in memory.
type memoryLoops struct {
	on   map[string]bool
	fail error
}

func (m *memoryLoops) Attach(file string, _ bool) error {
	if m.fail == nil {
		m.on[file] = true
	}
	return m.fail
}

func (m *memoryLoops) Detach(file string) error {
	delete(m.on, file)
	return nil
}

// disk is a loop device of the kernel on an image, for as long as the test runs.
func (r *localRig) loopDisk(t *testing.T) string {
	t.Helper()
	image := filepath.Join(r.root, "image")
	must(t, os.WriteFile(image, make([]byte, 1<<20), 0o600))
	err := kernelLoops{}.Attach(image, false)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) {
		t.Skip("no loop devices: ", err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, kernelLoops{}.Detach(image)) })
	loops, err := loopdev.Named(image)
	must(t, err)
	if len(loops) != 1 {
		t.Fatalf("the image has the loop devices %q", loops)
	}
	return loops[0]
}

// On a real kernel: a device is known by a file for each pod, held by a loop
// device, and let go of.
func TestMapDevice(t *testing.T) {
	plugintest.RequireMounts(t)
	r := localNewRig(t, &mount.Kernel{})
	disk := r.loopDisk(t)
	link := filepath.Join(r.root, "by-name")
	must(t, os.Symlink(disk, link))
	a, b := r.block("a", link), r.block("b", link)
	b.Spec.ReadOnly = true
	d, err := r.Device(a)
	must(t, err)
	if want := (volumemgr.Device{Name: "block/pv", Path: filepath.Join(r.root, "plugins", escaped, "volumeDevices/pv")}); d != want {
		t.Errorf("device %+v, want %+v", d, want)
	}
	a.DevicePath, b.DevicePath = d.Path, d.Path
	must(t, r.MountDevice(t.Context(), a))
	for range 2 {
		for _, v := range []*volumemgr.Volume{a, b} {
			got, err := r.MapDevice(t.Context(), v)
			must(t, err)
			if got != disk {
				t.Errorf("the pod gets %q, want %q", got, disk)
			}
			file := filepath.Join(d.Path, string(v.UID))
			if same, err := r.sameFile(t.Context(), disk, file); err != nil || !same {
				t.Errorf("%s is not the device (%v)", file, err)
			}
			if loops, err := loopdev.Named(file); err != nil || len(loops) != 1 {
				t.Errorf("%s is held by %q (%v)", file, loops, err)
			}
		}
	}
	if list, err := r.Devices(t.Context()); err != nil || !slices.Equal(list, []volumemgr.Device{d}) {
		t.Errorf("%v (%v)", list, err)
	}
	// The leftover of pod b is known only by its path.
	left := &volumemgr.Volume{Name: "pv", UID: "b", Path: b.Path}
	if got, err := r.Device(left); err != nil || got != d {
		t.Errorf("%+v (%v)", got, err)
	}
	for range 2 {
		must(t, r.UnmapDevice(t.Context(), left))
	}
	// A process died before it made a's link: the file goes with the device.
	for range 2 {
		must(t, r.UnmountDevice(t.Context(), d))
	}
	if list, err := r.Devices(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v (%v)", list, err)
	}
	for _, uid := range []string{"a", "b"} {
		if loops, err := loopdev.Named(filepath.Join(d.Path, uid)); err != nil || len(loops) > 0 {
			t.Errorf("%s is still held by %q (%v)", uid, loops, err)
		}
	}
	if _, err := os.Stat(disk); err != nil {
		t.Error(err)
	}
}

// Another disk that comes to the path takes the place of the first.
func TestMapOtherDevice(t *testing.T) {
	plugintest.RequireMounts(t)
	r := localNewRig(t, &mount.Kernel{})
	disk := r.loopDisk(t)
	link := filepath.Join(r.root, "by-name")
	must(t, os.Symlink(disk, link))
	v := r.block("a", link)
	_, err := r.MapDevice(t.Context(), v)
	must(t, err)
	other := localNewRig(t, &mount.Kernel{}).loopDisk(t)
	must(t, os.Remove(link))
	must(t, os.Symlink(other, link))
	got, err := r.MapDevice(t.Context(), v)
	must(t, err)
	if same, err := r.sameFile(t.Context(), other, r.podFile(v)); got != other || err != nil || !same {
		t.Errorf("the pod gets %q, want %q (%v)", got, other, err)
	}
	must(t, r.UnmapDevice(t.Context(), v))
}

// After any failure nothing is left; without loop devices nothing holds the device, but pods can
// still use it.
func TestMapDeviceFails(t *testing.T) {
	m := &plugintest.MountMemory{}
	r := localNewRig(t, m)
	loops := &memoryLoops{on: map[string]bool{}}
	r.cfg.Loops = loops
	disks, err := filepath.Glob("/dev/loop[0-9]*")
	must(t, err)
	if len(disks) == 0 {
		t.Skip("no block device here to point at")
	}
	v := r.block("a", disks[0])
	loops.fail = errors.New("no")
	if _, err := r.MapDevice(t.Context(), v); err == nil || !strings.Contains(err.Error(), "attach a loop device to "+disks[0]) || errors.Is(err, volumemgr.ErrUncertain) {
		t.Errorf("%v", err)
	}
	check := func() {
		t.Helper()
		if _, err := os.Lstat(r.podFile(v)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file stays (%v)", err)
		}
		if table, err := m.Table(t.Context()); err != nil || len(table) > 0 || len(loops.on) > 0 {
			t.Errorf("leaked %v, %v (%v)", table, loops.on, err)
		}
	}
	check()
	loops.fail = errors.ErrUnsupported
	_, err = r.MapDevice(t.Context(), v)
	must(t, err)
	must(t, r.UnmapDevice(t.Context(), v))
	check()
	loops.fail = nil
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 10; failAt++ {
			m.Fail, m.After = plugintest.FailMountAt(failAt, way.crash), way.after
			_, _ = r.MapDevice(t.Context(), v)
			_ = r.UnmapDevice(t.Context(), v)
			m.Fail = nil
			must(t, r.UnmapDevice(t.Context(), v))
			check()
		}
	}
}
