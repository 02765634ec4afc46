package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/diskusage/quotatest"
	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func newPlugin(t testing.TB, cfg emptyDirConfig) *emptyDirPlugin {
	t.Helper()
	if cfg.NoSwap == nil {
		cfg.NoSwap = new(bool)
	}
	p, err := newEmptyDir(cfg)
	must(t, err)
	return p
}

func volume(t testing.TB, e v1.EmptyDirVolumeSource) *volumemgr.Volume {
	t.Helper()
	top := t.TempDir()
	return &volumemgr.Volume{
		Spec: &volumemgr.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &e}}},
		Pod:  podOf(nil, container("memory", "1Mi", "hugepages-2Mi", "2Mi")), UID: "u", Name: "v",
		Path: filepath.Join(top, "pods/u/volumes/kubernetes.io~empty-dir/v"), StateDir: filepath.Join(top, "pods/u/plugins/kubernetes.io~empty-dir/v"),
		Warn: func(string, string) {},
	}
}

// found is the volume as a later process finds it.
func found(v *volumemgr.Volume) *volumemgr.Volume {
	return &volumemgr.Volume{UID: v.UID, Name: v.Name, Path: v.Path, StateDir: v.StateDir, Found: true}
}

func TestNewAndSupports(t *testing.T) {
	if _, err := newEmptyDir(emptyDirConfig{}); err == nil {
		t.Error("no mounter, no error")
	}
	p := newPlugin(t, emptyDirConfig{Mounter: &plugintest.MountMemory{}})
	if !p.Supports(volume(t, v1.EmptyDirVolumeSource{}).Spec) || p.Supports(&volumemgr.Spec{Volume: &v1.Volume{}}) || p.Supports(&volumemgr.Spec{PersistentVolume: &v1.PersistentVolume{}}) {
		t.Error("supports the wrong kind")
	}
}

func TestOnDisk(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	m := &plugintest.MountMemory{}
	p := newPlugin(t, emptyDirConfig{Mounter: m})
	v := volume(t, v1.EmptyDirVolumeSource{})
	for range 2 {
		r, err := p.SetUp(t.Context(), v)
		must(t, err)
		if r != (volumemgr.Result{Path: v.Path}) {
			t.Errorf("%+v", r)
		}
		must(t, os.WriteFile(filepath.Join(v.Path, "data"), nil, 0o600))
	}
	if info, err := os.Stat(v.Path); err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	// Containers may change the mode of their files.
	must(t, os.Chmod(v.Path, 0o700))
	_, err := p.SetUp(t.Context(), v)
	must(t, err)
	if info, err := os.Stat(v.Path); err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	// A missing directory is created again.
	must(t, os.RemoveAll(v.Path))
	_, err = p.SetUp(t.Context(), v)
	must(t, err)
	if info, err := os.Stat(v.Path); err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	for range 2 {
		must(t, p.TearDown(t.Context(), found(v)))
	}
	gone(t, v)
	if len(m.Log()) > 0 {
		t.Errorf("mounts %q", m.Log())
	}
}

func gone(t *testing.T, v *volumemgr.Volume) {
	t.Helper()
	for _, d := range []string{v.Path, v.StateDir} {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left (%v)", d, err)
		}
	}
}

func TestMedia(t *testing.T) {
	for _, tc := range []struct {
		medium v1.StorageMedium
		noswap bool
		want   mount.Entry // no Type: an error
	}{
		{"Memory", false, mount.Entry{Type: "tmpfs", Source: "tmpfs", SuperOptions: []string{"size=1048576"}}},
		{"Memory", true, mount.Entry{Type: "tmpfs", Source: "tmpfs", SuperOptions: []string{"size=1048576", "noswap"}}},
		{"HugePages", false, mount.Entry{Type: "hugetlbfs", Source: "nodev", SuperOptions: []string{"pagesize=2Mi"}}},
		{"HugePages-2Mi", false, mount.Entry{Type: "hugetlbfs", Source: "nodev", SuperOptions: []string{"pagesize=2Mi"}}},
		{"HugePages-1Gi", false, mount.Entry{}},
		{"Tape", false, mount.Entry{}},
	} {
		m := &plugintest.MountMemory{}
		p := newPlugin(t, emptyDirConfig{Mounter: m, NoSwap: &tc.noswap, Allocatable: func() int64 { return 1 << 40 }})
		v := volume(t, v1.EmptyDirVolumeSource{Medium: tc.medium})
		for range 2 {
			if _, err := p.SetUp(t.Context(), v); (err == nil) != (tc.want.Type != "") {
				t.Errorf("%s: %v", tc.medium, err)
			}
		}
		table, err := m.Table(t.Context())
		must(t, err)
		if tc.want.Type == "" {
			if len(table) > 0 {
				t.Errorf("%s: mounted %v", tc.medium, table)
			}
			continue
		}
		if len(table) != 1 || table[0].Type != tc.want.Type || table[0].Source != tc.want.Source || !slices.Equal(table[0].SuperOptions, tc.want.SuperOptions) {
			t.Errorf("%s: mounted %v", tc.medium, table)
		}
		must(t, p.TearDown(t.Context(), found(v)))
		gone(t, v)
	}
}

// On a real kernel.
func TestMemory(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	p, err := newEmptyDir(emptyDirConfig{Mounter: k})
	must(t, err)
	v := volume(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: amount("64Ki")})
	group := int64(2000)
	v.FSGroup = &group
	for range 2 {
		_, err = p.SetUp(t.Context(), v)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(v.Path, "data"), make([]byte, 1000), 0o600))
	}
	if err := os.WriteFile(filepath.Join(v.Path, "large"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a megabyte in 64Ki: %v", err)
	}
	info, err := os.Stat(v.Path)
	must(t, err)
	// The sticky bit is tmpfs's own.
	if info.Mode() != fs.ModeDir|fs.ModeSetgid|fs.ModeSticky|0o777 || info.Sys().(*syscall.Stat_t).Gid != 2000 {
		t.Errorf("mode %v, group %d", info.Mode(), info.Sys().(*syscall.Stat_t).Gid)
	}
	// After a restart of the machine the directory and the marker are there.
	must(t, k.Unmount(t.Context(), v.Path, mount.Plain))
	_, err = p.SetUp(t.Context(), v)
	must(t, err)
	if at, err := mount.Find(t.Context(), k, v.Path); err != nil || len(at) != 1 {
		t.Errorf("mounted %v (%v)", at, err)
	}
	if info, err := os.Stat(v.Path); err != nil || info.Sys().(*syscall.Stat_t).Gid != 2000 {
		t.Errorf("the group is lost (%v)", err)
	}
	// A mount by a container below the volume stays, and so does the volume.
	below := filepath.Join(v.Path, "below")
	must(t, os.Mkdir(below, 0o755))
	must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: below}))
	must(t, os.WriteFile(filepath.Join(below, "precious"), nil, 0o600))
	if err := p.TearDown(t.Context(), found(v)); err == nil {
		t.Error("removed below a mount")
	}
	if _, err := os.Stat(filepath.Join(below, "precious")); err != nil {
		t.Error(err)
	}
	must(t, k.Unmount(t.Context(), below, mount.Plain))
	must(t, p.TearDown(t.Context(), found(v)))
	gone(t, v)
}

// If any call of the mounter fails or dies, the next SetUp and TearDown succeed, and content is
// never lost.
func TestEveryMountCallMayFail(t *testing.T) {
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 12; failAt++ {
			m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
			p := newPlugin(t, emptyDirConfig{Mounter: m})
			v := volume(t, v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory})
			_, err := p.SetUp(t.Context(), v)
			if err != nil && !errors.Is(err, volumemgr.ErrUncertain) {
				t.Errorf("fault %d: it may be mounted, and the error is %v", failAt, err)
			}
			if err == nil {
				must(t, os.WriteFile(filepath.Join(v.Path, "data"), nil, 0o600))
				_, _ = p.SetUp(t.Context(), v)
				if _, err := os.Stat(filepath.Join(v.Path, "data")); err != nil {
					t.Error(err)
				}
			}
			_ = p.TearDown(t.Context(), found(v))
			m.Fail = nil
			_, err = p.SetUp(t.Context(), v)
			must(t, err)
			if at, err := mount.Find(t.Context(), m, v.Path); err != nil || len(at) != 1 {
				t.Errorf("fault %d: mounted %v (%v)", failAt, at, err)
			}
			must(t, p.TearDown(t.Context(), found(v)))
			gone(t, v)
			if table, err := m.Table(t.Context()); err != nil || len(table) > 0 {
				t.Errorf("fault %d: leaked %v (%v)", failAt, table, err)
			}
		}
	}
}

// The kernel counts a volume of a pod with a user namespace, where the disk has project quotas. A
// volume that was made before stays as it is.
func TestProjectIsForUserNamespaces(t *testing.T) {
	t.Setenv("TMPDIR", quotatest.Disk(t))
	for _, hostUsers := range []*bool{nil, new(true), new(false)} {
		t.Run(fmt.Sprint("hostUsers ", hostUsers == nil || *hostUsers), func(t *testing.T) {
			p, v := newPlugin(t, emptyDirConfig{Mounter: &plugintest.MountMemory{}, Projects: true}), volume(t, v1.EmptyDirVolumeSource{})
			v.Pod.Spec.HostUsers = hostUsers
			for range 2 {
				_, err := p.SetUp(t.Context(), v)
				must(t, err)
			}
			must(t, os.WriteFile(filepath.Join(v.Path, "data"), make([]byte, 1<<20), 0o600))
			u, err := diskusage.Quota(v.StateDir)
			if own := hostUsers != nil && !*hostUsers; own != (err == nil) || own && (u.Used < 1<<20 || u.Used > 1<<20+64<<10) {
				t.Errorf("%d bytes, %v", u.Used, err)
			}
			must(t, p.TearDown(t.Context(), found(v)))
			gone(t, v)
		})
	}
	t.Run("turned on later", func(t *testing.T) {
		v := volume(t, v1.EmptyDirVolumeSource{})
		v.Pod.Spec.HostUsers = new(false)
		for _, on := range []bool{false, true} {
			_, err := newPlugin(t, emptyDirConfig{Mounter: &plugintest.MountMemory{}, Projects: on}).SetUp(t.Context(), v)
			must(t, err)
		}
		if u, err := diskusage.Quota(v.StateDir); !errors.Is(err, diskusage.ErrNoQuota) {
			t.Errorf("%d bytes, %v; want a volume that is walked", u.Used, err)
		}
	})
}
