package scratch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	top := t.TempDir()
	path := filepath.Join(top, "a/b/c")
	for range 2 {
		must(t, Dir(path))
		must(t, Open(path))
		must(t, os.MkdirAll(filepath.Join(path, "content"), 0o755))
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	must(t, os.Symlink(path, filepath.Join(top, "link")))
	must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o600))
	for _, n := range []string{"link", "file", "file/x"} {
		if err := Dir(filepath.Join(top, n)); err == nil {
			t.Errorf("%s is taken for a directory", n)
		}
	}
}

func TestMountOnce(t *testing.T) {
	m := &plugintest.MountMemory{}
	path := t.TempDir()
	f := mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: path}
	must(t, Mount(t.Context(), m, f, nil))
	must(t, Mount(t.Context(), m, f, nil))
	if len(m.Log()) != 1 {
		t.Errorf("mounts: %q", m.Log())
	}
	bad := errors.New("bad")
	if err := Mount(t.Context(), m, f, func(mount.Entry) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
	f.Type = "hugetlbfs"
	if err := Mount(t.Context(), m, f, nil); err == nil {
		t.Error("another file system will do")
	}
}

func TestRemoveStopsAtMounts(t *testing.T) {
	m := &plugintest.MountMemory{}
	path := filepath.Join(t.TempDir(), "v")
	must(t, os.MkdirAll(filepath.Join(path, "sub/data"), 0o755))
	must(t, m.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Target: filepath.Join(path, "sub")}))
	if err := Remove(t.Context(), m, path); err == nil {
		t.Error("removed")
	}
	if _, err := os.Stat(filepath.Join(path, "sub/data")); err != nil {
		t.Error(err)
	}
	must(t, m.Unmount(t.Context(), filepath.Join(path, "sub"), mount.Plain))
	for range 2 {
		must(t, Remove(t.Context(), m, path))
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	must(t, Remove(t.Context(), m, filepath.Join(path, "no/parents")))
}

func TestNoSwap(t *testing.T) {
	all := "         0          0 4294967295\n"
	for _, tc := range []struct {
		release, ids string
		want         bool
	}{
		{"6.4.0", all, true}, {"6.18.44-fc-v595", all, true}, {"7.0", all, true}, {"6.4-rc1", all, true},
		{"6.3.9", all, false}, {"5.15.0-generic", all, false}, {"", all, false}, {"x.y", all, false}, {"6.8.0", "0 100000 65536\n", false}, {"6.8.0", "", false},
	} {
		if got := noSwap(tc.release, tc.ids); got != tc.want {
			t.Errorf("%q %q: %t", tc.release, tc.ids, got)
		}
	}
	NoSwap() // whatever it says
}
