package csi

import (
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/internal/loopdev"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// onDisks is a node whose driver has real disks: loop devices that the kernel mounts.
func onDisks(t *testing.T) *node {
	t.Helper()
	plugintest.RequireMounts(t)
	disks := csitest.NewLoops(t)
	n := newNode(t, nil, func(c *csitest.Config) {
		c.Capabilities = []spec.NodeServiceCapability_RPC_Type{csitest.Stage, csitest.Expand}
		c.Disks = disks
	})
	n.disks = disks
	n.register()
	return n
}

// free checks that a volume has no device any more.
func (n *node) free(handle string) {
	n.Helper()
	if have, err := loopdev.Of(n.disks.Image(handle)); err != nil || len(have) > 0 {
		n.Errorf("volume %s still has %v (%v)", handle, have, err)
	}
}

// If the agent dies at some step (with -every: at each step), no disk with a file open in a
// container is unmounted, none is mounted twice, and no loop device is left.
func TestDeathAtEveryStepOnDisks(t *testing.T) {
	plugintest.RequireMounts(t)
	dying(t, 60, func(t *testing.T) *csitest.Loops { return csitest.NewLoops(t) })
}

// Data written to a block volume is visible in every pod that uses it.
func TestABlockVolumeIsADisk(t *testing.T) {
	n := onDisks(t)
	p := n.m.Plugin()
	spec := persistent("h1", block)
	for i, uid := range []string{"u1", "u2"} {
		v := n.volume(uid, spec)
		if err := p.MountDevice(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		path, err := p.MapDevice(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 8)
		if i == 0 {
			copy(b, "measured")
			_, err = f.WriteAt(b, 1<<20)
		} else {
			_, err = f.ReadAt(b, 1<<20)
		}
		if err != nil || string(b) != "measured" {
			t.Errorf("%s has %q (%v)", uid, b, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		d, err := p.Device(found(v))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.UnmapDevice(t.Context(), found(v)); err != nil {
			t.Error(err)
		}
		if err := p.UnmountDevice(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	n.clean()
	n.free("h1")
}

// The files of an ext4 are given to the pod's group, and stay so on the disk; a pod
// with another one and OnRootMismatch has them changed once.
func TestFilesOfADiskAreTheGroups(t *testing.T) {
	n := onDisks(t)
	s := persistent("h1", func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" })
	for i, c := range []struct {
		uid    string
		group  int64
		policy *v1.PodFSGroupChangePolicy
	}{
		{"u1", 4321, nil}, {"u2", 4321, new(v1.FSGroupChangeOnRootMismatch)}, {"u3", 8765, new(v1.FSGroupChangeOnRootMismatch)},
	} {
		v := n.volume(c.uid, s)
		v.FSGroup, v.FSGroupPolicy = &c.group, c.policy
		r := n.must(v)
		dir := filepath.Join(r.Path, "dir")
		if i == 0 {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{r.Path, dir, filepath.Join(r.Path, "lost+found")} {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				t.Fatal(err)
			}
			if int64(st.Gid) != c.group || path == r.Path && st.Mode&(unix.S_ISGID|0o070) != unix.S_ISGID|0o070 {
				t.Errorf("%s: %s has group %d and mode %o", c.uid, path, st.Gid, st.Mode)
			}
		}
		n.unmount(v)
	}
	n.clean()
	n.free("h1")
}

// mayGrow skips a test that makes a mounted ext4 larger where root may not
// (CAP_SYS_RESOURCE, capabilities(7)): some sandboxes.
func mayGrow(t *testing.T) {
	t.Helper()
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		t.Fatal(err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		t.Skip("needs CAP_SYS_RESOURCE")
	}
}

// A mounted ext4 volume is expanded, and keeps its content.
func TestADiskGrowsWhileItIsMounted(t *testing.T) {
	n := onDisks(t)
	mayGrow(t)
	s := persistent("h1", sized("4Mi"), func(pv *v1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" })
	v := n.volume("u1", s)
	r := n.must(v)
	file := filepath.Join(r.Path, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	size := func() uint64 {
		var st unix.Statfs_t
		if err := unix.Statfs(r.Path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * uint64(st.Bsize)
	}
	before := size()
	e := Expansion{Pod: v.Pod, Spec: persistent("h1", sized("12Mi")), Claim: &v1.PersistentVolumeClaim{}}
	if done, err := n.m.Expand(t.Context(), e, nil); !done || err != nil {
		t.Fatalf("%t (%v)", done, err)
	}
	if after := size(); before > 4<<20 || after < 10<<20 || after > 12<<20 {
		t.Errorf("%d bytes, and %d before", after, before)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "kept" {
		t.Errorf("%q (%v)", b, err)
	}
	n.unmount(v)
	n.clean()
	n.free("h1")
}
