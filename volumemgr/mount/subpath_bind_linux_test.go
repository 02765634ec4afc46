package mount_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/plugintest"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

func newBinder(t testing.TB, m mount.Mounter, w mount.SubPathWalk) *mount.SubPathBinder {
	t.Helper()
	b, err := mount.NewSubPathBinder(mount.SubPathConfig{Mounter: m, Walk: w})
	must(t, err)
	return b
}

func request(at func(...string) string, sub string) mount.SubPathRequest {
	return mount.SubPathRequest{PodDir: at("pod"), Volume: "vol", VolumePath: at("base"), Container: "c", Index: 1, SubPath: sub}
}

func TestNewNeedsAMounter(t *testing.T) {
	if _, err := mount.NewSubPathBinder(mount.SubPathConfig{}); err == nil {
		t.Error("it is accepted")
	}
}

// On a real kernel: either the requested file is mounted, or nothing.
func TestBind(t *testing.T) {
	plugintest.RequireMounts(t)
	walks(t, func(t *testing.T, w mount.SubPathWalk) {
		for _, tc := range []struct {
			sub, want string // want "" : refused
		}{
			{"dir", "base/dir"}, {"dir/sub", "base/dir/sub"}, {"in", "base/dir"}, {"absolute/sub", "base/dir/sub"},
			{"dir/file", "base/dir/file"}, {"tofile", "base/dir/file"}, {"fifo", "base/fifo"}, {"socket", "base/socket"}, {".", "base"},
			{"new/a", "base/new/a"}, {"in/new", "base/dir/new"},
			{"out", ""}, {"out/secret", ""}, {"root", ""}, {"root/etc", ""}, {"up", ""}, {"dangling", ""}, {"loop1", ""},
			{"outdangling", ""}, {"dir/file/x", ""}, {"../outside", ""}, {"/etc", ""}, {"a\x00b", ""},
		} {
			_, at := tree(t)
			k := &mount.Kernel{}
			b := newBinder(t, k, w)
			got, err := b.Bind(t.Context(), request(at, tc.sub))
			if tc.want == "" {
				if err == nil {
					t.Errorf("%q was bound", tc.sub)
				}
				if _, err := os.Lstat(at("pod/volume-subpaths/vol/c/1")); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%q: a target is left (%v)", tc.sub, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q: %v", tc.sub, err)
				continue
			}
			if got != at("pod/volume-subpaths/vol/c/1") {
				t.Errorf("%q: host path %s", tc.sub, got)
			}
			is, err1 := os.Lstat(got)
			want, err2 := os.Lstat(at(tc.want))
			if err1 != nil || err2 != nil || !os.SameFile(is, want) {
				t.Errorf("%q: something else was bound (%v, %v)", tc.sub, err1, err2)
			}
			must(t, b.Clean(t.Context(), at("pod"), "vol"))
			if _, err := os.Lstat(at("pod/volume-subpaths")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: something is left (%v)", tc.sub, err)
			}
			if _, err := os.Lstat(at(tc.want)); err != nil {
				t.Errorf("%q: the content is gone: %v", tc.sub, err)
			}
		}
	})
}

// An existing mount is reused if its source is the same, and replaced if the source was replaced.
func TestBindAgain(t *testing.T) {
	plugintest.RequireMounts(t)
	_, at := tree(t)
	k := &mount.Kernel{}
	b := newBinder(t, k, mount.SubPathWalk{})
	r := request(at, "dir")
	path, err := b.Bind(t.Context(), r)
	must(t, err)
	id := func() int {
		found, err := mount.Find(t.Context(), k, path)
		must(t, err)
		if len(found) != 1 {
			t.Fatalf("%d mounts", len(found))
		}
		return found[0].ID
	}
	first := id()
	_, err = b.Bind(t.Context(), r)
	must(t, err)
	if id() != first {
		t.Error("it was mounted again")
	}
	for _, makeNew := range []func() error{
		func() error { return os.Mkdir(at("base/dir"), 0o755) },
		func() error { return os.WriteFile(at("base/dir"), []byte("x"), 0o644) }, // and of another kind
		func() error { return os.Mkdir(at("base/dir"), 0o755) },
	} {
		must(t, os.RemoveAll(at("base/dir")))
		must(t, makeNew())
		_, err = b.Bind(t.Context(), r)
		must(t, err)
		is, err1 := os.Lstat(path)
		want, err2 := os.Lstat(at("base/dir"))
		if err1 != nil || err2 != nil || !os.SameFile(is, want) {
			t.Errorf("the old source is bound still (%v %v)", err1, err2)
		}
		id()
	}
	must(t, b.Clean(t.Context(), at("pod"), "vol"))
}

func TestTargetModes(t *testing.T) {
	_, at := tree(t)
	b := newBinder(t, &plugintest.MountMemory{}, mount.SubPathWalk{})
	must(t, os.Chmod(at("base"), fs.ModeSetgid|0o775))
	for i, sub := range []string{"dir", "dir/file", "new/a"} {
		r := request(at, sub)
		r.Index = i
		_, err := b.Bind(t.Context(), r)
		must(t, err)
	}
	for name, want := range map[string]fs.FileMode{
		"pod/volume-subpaths": fs.ModeDir | 0o750, "pod/volume-subpaths/vol/c": fs.ModeDir | 0o750, "pod/volume-subpaths/vol/c/0": fs.ModeDir | 0o750,
		"pod/volume-subpaths/vol/c/1": 0o640, "base/new": fs.ModeDir | fs.ModeSetgid | 0o775, "base/new/a": fs.ModeDir | fs.ModeSetgid | 0o775,
	} {
		if info, err := os.Lstat(at(name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
}

func TestNamesAreNoPaths(t *testing.T) {
	_, at := tree(t)
	b := newBinder(t, &plugintest.MountMemory{}, mount.SubPathWalk{})
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		r := request(at, "dir")
		r.Volume = name
		if _, err := b.Bind(t.Context(), r); err == nil {
			t.Errorf("volume %q", name)
		}
		r = request(at, "dir")
		r.Container = name
		if _, err := b.Bind(t.Context(), r); err == nil {
			t.Errorf("container %q", name)
		}
		if err := b.Clean(t.Context(), at("pod"), name); err == nil {
			t.Errorf("clean %q", name)
		}
	}
}

func TestClean(t *testing.T) {
	for _, tc := range []struct {
		name  string
		make  func(at func(...string) string) error
		fails bool
		left  string // expected file; "" means none
	}{
		{"nothing", func(func(...string) string) error { return nil }, false, ""},
		{"no containers", func(at func(...string) string) error { return os.MkdirAll(at("vol"), 0o750) }, false, ""},
		{"empty containers", func(at func(...string) string) error { return os.MkdirAll(at("vol/c"), 0o750) }, false, ""},
		{"targets without mounts", func(at func(...string) string) error {
			return errors.Join(os.MkdirAll(at("vol/c/0"), 0o750), os.WriteFile(at("vol/c/1"), nil, 0o640))
		}, false, ""},
		{"another volume", func(at func(...string) string) error { return os.MkdirAll(at("other/c/0"), 0o750) }, false, "other/c/0"},
		{"a file in place of a container", func(at func(...string) string) error {
			return errors.Join(os.MkdirAll(at("vol/c/0"), 0o750), os.WriteFile(at("vol/x"), []byte("x"), 0o640))
		}, true, "vol/x"},
		{"a link in place of a container", func(at func(...string) string) error {
			return errors.Join(os.MkdirAll(at("other/c/0"), 0o750), os.MkdirAll(at("vol"), 0o750), os.Symlink(at("other/c"), at("vol/x")))
		}, true, "other/c/0"},
		{"a link in place of a target", func(at func(...string) string) error {
			return errors.Join(os.MkdirAll(at("other/c/0"), 0o750), os.MkdirAll(at("vol/c"), 0o750), os.Symlink(at("other/c/0"), at("vol/c/0")))
		}, true, "other/c/0"},
		{"a link in place of the volume", func(at func(...string) string) error {
			return errors.Join(os.MkdirAll(at("other/c/0"), 0o750), os.Symlink("other", at("vol")))
		}, true, "other/c/0"},
		{"content", func(at func(...string) string) error { return os.MkdirAll(at("vol/c/0/data"), 0o750) }, true, "vol/c/0/data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := t.TempDir()
			at := func(name ...string) string {
				return filepath.Join(append([]string{pod, "volume-subpaths"}, name...)...)
			}
			must(t, os.MkdirAll(at(), 0o750))
			must(t, tc.make(at))
			err := newBinder(t, &plugintest.MountMemory{}, mount.SubPathWalk{}).Clean(t.Context(), pod, "vol")
			if (err != nil) != tc.fails {
				t.Errorf("error %v, want one: %t", err, tc.fails)
			}
			if _, err := os.Lstat(at(tc.left)); tc.left != "" && err != nil {
				t.Error(err)
			} else if tc.left == "" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something is left (%v)", err)
			}
		})
	}
}

// If any call of the mounter fails or dies, only requested files are mounted, no content is lost,
// and the next Bind and Clean succeed.
func TestEveryMountCallMayFail(t *testing.T) {
	for _, way := range []struct{ crash, after bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		for failAt := 1; failAt < 20; failAt++ {
			_, at := tree(t)
			m := &plugintest.MountMemory{Fail: plugintest.FailMountAt(failAt, way.crash), After: way.after}
			b := newBinder(t, m, mount.SubPathWalk{})
			r := request(at, "dir")
			_, err1 := b.Bind(t.Context(), r)
			err2 := b.Clean(t.Context(), at("pod"), "vol")
			if m.Calls() < failAt && (err1 != nil || err2 != nil) {
				t.Errorf("no fault, and %v, %v", err1, err2)
			}
			m.Fail = nil
			path, err := b.Bind(t.Context(), r)
			must(t, err)
			if found, err := mount.Find(t.Context(), m, path); err != nil || len(found) != 1 || found[0].Source != at("base/dir") {
				t.Errorf("fault %d: mounted %v (%v)", failAt, found, err)
			}
			must(t, b.Clean(t.Context(), at("pod"), "vol"))
			if table, err := m.Table(t.Context()); err != nil || len(table) != 0 {
				t.Errorf("fault %d: still mounted: %v (%v)", failAt, table, err)
			}
			if _, err := os.Stat(at("base/dir/file")); err != nil {
				t.Error(err)
			}
		}
	}
}
