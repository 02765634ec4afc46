package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// localRig is a node with a disk.
type localRig struct {
	*localPlugin
	root, disk string
	warned     []string
}

func localNewRig(t *testing.T, m mount.Mounter) *localRig {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	r := &localRig{root: root, disk: filepath.Join(root, "disk")}
	must(t, os.Mkdir(r.disk, 0o755))
	must(t, os.WriteFile(filepath.Join(r.disk, "data"), nil, 0o600))
	r.localPlugin, err = newLocal(localPluginConfig{Mounter: m, Root: root})
	must(t, err)
	return r
}

func (r *localRig) volume(uid, path string) *volumemgr.Volume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
		MountOptions: []string{"nosuid"}, PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
	}}
	return &volumemgr.Volume{
		Spec: &volumemgr.Spec{PersistentVolume: pv}, Name: "pv",
		Path: filepath.Join(r.root, "pods", uid, "volumes", escaped, "pv"),
		Warn: func(reason, _ string) { r.warned = append(r.warned, reason) },
	}
}

func group(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Gid
}

func TestNew(t *testing.T) {
	for _, cfg := range []localPluginConfig{{}, {Mounter: &plugintest.MountMemory{}}, {Mounter: &plugintest.MountMemory{}, Root: "x"}, {Root: "/"}} {
		if _, err := newLocal(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestPaths(t *testing.T) {
	r := localNewRig(t, &plugintest.MountMemory{})
	fifo := filepath.Join(r.root, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	for path, ok := range map[string]bool{
		r.disk: true, r.disk + "/data": false, fifo: false, "/dev/null": false, r.root + "/none": false,
		"relative": false, r.disk + "/../disk": false, "": false, "/a\x00": false,
	} {
		v := r.volume("a", path)
		if _, err := r.SetUp(t.Context(), v); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
		if _, err := os.Lstat(v.Path); !ok && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the disk was touched (%v)", path, err)
		}
		must(t, r.TearDown(t.Context(), v))
		if _, err := r.MapDevice(t.Context(), v); err == nil {
			t.Errorf("%q is no block device", path)
		}
	}
}

// On a real kernel: bound with its options, the group by the first pod.
func TestBindAndGroup(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	r := localNewRig(t, k)
	// A mount of its own, as disks have.
	must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: r.disk}))
	must(t, os.WriteFile(filepath.Join(r.disk, "data"), nil, 0o600))
	a, b := r.volume("a", r.disk), r.volume("b", r.disk)
	a.FSGroup, b.FSGroup = new(int64(2000)), new(int64(3000))
	for range 2 {
		res, err := r.SetUp(t.Context(), a)
		must(t, err)
		if res != (volumemgr.Result{Path: a.Path}) {
			t.Errorf("%+v", res)
		}
		a.Remount = true
	}
	found, err := mount.Find(t.Context(), k, a.Path)
	must(t, err)
	if len(found) != 1 || !slices.Contains(found[0].Options, "nosuid") {
		t.Errorf("mounted %+v", found)
	}
	if g := group(t, filepath.Join(a.Path, "data")); g != 2000 || len(r.warned) > 0 {
		t.Errorf("group %d, warned %q", g, r.warned)
	}
	_, err = r.SetUp(t.Context(), b)
	must(t, err)
	if g := group(t, filepath.Join(b.Path, "data")); g != 2000 || !slices.Equal(r.warned, []string{"AlreadyMountedVolume"}) {
		t.Errorf("group %d, warned %q", g, r.warned)
	}
	must(t, r.TearDown(t.Context(), a))
	must(t, r.TearDown(t.Context(), b))
	_, err = r.SetUp(t.Context(), b)
	must(t, err)
	if g := group(t, filepath.Join(b.Path, "data")); g != 3000 {
		t.Errorf("group %d", g)
	}
	must(t, r.TearDown(t.Context(), b))
	b.Spec.ReadOnly = true
	b.FSGroup = new(int64(4000))
	_, err = r.SetUp(t.Context(), b)
	must(t, err)
	if err := os.WriteFile(filepath.Join(b.Path, "x"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: %v", err)
	}
	if g := group(t, filepath.Join(b.Path, "data")); g != 3000 {
		t.Errorf("read-only, and given to group %d", g)
	}
	must(t, r.TearDown(t.Context(), b))
	if _, err := os.Stat(filepath.Join(r.disk, "data")); err != nil {
		t.Errorf("content is gone: %v", err)
	}
	must(t, k.Unmount(t.Context(), r.disk, mount.Plain))
}

// If any call of the mounter fails or dies, content stays, nothing leaks, and the next calls
// succeed.
func TestLocalEveryMountCallMayFail(t *testing.T) {
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 10; failAt++ {
			m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
			r := localNewRig(t, m)
			v := r.volume("a", r.disk)
			_, _ = r.SetUp(t.Context(), v)
			_ = r.TearDown(t.Context(), v)
			m.Fail = nil
			_, err := r.SetUp(t.Context(), v)
			must(t, err)
			if found, err := mount.Find(t.Context(), m, v.Path); err != nil || len(found) != 1 {
				t.Errorf("fault %d: %v (%v)", failAt, found, err)
			}
			must(t, r.TearDown(t.Context(), v))
			if table, err := m.Table(t.Context()); err != nil || len(table) != 0 {
				t.Errorf("fault %d: leaked %v (%v)", failAt, table, err)
			}
			if _, err := os.Stat(filepath.Join(r.disk, "data")); err != nil {
				t.Error(err)
			}
		}
	}
}

// programs stands in for blkid, fsck and mkfs, and records the calls.
type programs struct {
	answers map[string]struct {
		out  string
		exit int
	}
	ran []string
}

func (p *programs) run(_ context.Context, program string, args ...string) (string, int, error) {
	p.ran = append(p.ran, program+" "+strings.Join(args, " "))
	a, ok := p.answers[program]
	if !ok {
		return "", 0, fmt.Errorf("%s: not expected", program)
	}
	return a.out, a.exit, nil
}

func TestDevices(t *testing.T) {
	m := &plugintest.MountMemory{}
	r := localNewRig(t, m)
	v := r.volume("a", r.disk)
	if d, err := r.Device(v); err != nil || d != (volumemgr.Device{}) {
		t.Errorf("a directory has the device %+v (%v)", d, err)
	}
	if list, err := r.Devices(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v (%v)", list, err)
	}
	want := volumemgr.Device{Name: "pv", Path: filepath.Join(r.root, "plugins/kubernetes.io/local-volume/mounts/pv")}
	unknown := &volumemgr.Volume{Name: "pv", Path: v.Path}
	if d, err := r.Device(unknown); err != nil || d != (volumemgr.Device{}) {
		t.Errorf("%+v (%v)", d, err)
	}

	p := &programs{answers: map[string]struct {
		out  string
		exit int
	}{"blkid": {"TYPE=ext4\n", 0}, "fsck": {}}}
	r.cfg.Run = p.run
	v.DevicePath = want.Path
	for range 2 {
		must(t, r.MountDevice(t.Context(), v))
	}
	if got := m.Log(); len(got) != 1 || got[0] != "mount ext4 "+r.disk+" "+want.Path {
		t.Errorf("mounts %q", got)
	}
	if d, err := r.Device(unknown); err != nil || d != want {
		t.Errorf("%+v (%v)", d, err)
	}
	if list, err := r.Devices(t.Context()); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("%v (%v)", list, err)
	}
	for range 2 {
		must(t, r.UnmountDevice(t.Context(), want))
	}
	if table, err := m.Table(t.Context()); err != nil || len(table) > 0 {
		t.Errorf("leaked %v (%v)", table, err)
	}
}

// A device that a pod has still is not unmounted.
func TestLocalDeviceInUse(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	r := localNewRig(t, k)
	d := volumemgr.Device{Name: "pv", Path: filepath.Join(r.root, "plugins/kubernetes.io/local-volume/mounts/pv")}
	must(t, os.MkdirAll(d.Path, 0o750))
	must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: d.Path}))
	v := r.volume("a", r.disk)
	must(t, os.MkdirAll(v.Path, 0o750))
	must(t, k.Bind(t.Context(), mount.Bind{Source: d.Path, Target: v.Path}))
	if err := r.UnmountDevice(t.Context(), d); err == nil {
		t.Error("unmounted")
	}
	must(t, r.TearDown(t.Context(), v))
	must(t, r.UnmountDevice(t.Context(), d))
}
