package plugintest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// ConformMounter tests the contract of [mount.Mounter].
func ConformMounter(t *testing.T, m mount.Mounter) {
	ctx := t.Context()
	dir := func(t *testing.T, names ...string) string {
		t.Helper()
		top, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.MkdirAll(filepath.Join(top, n), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return top
	}
	at := func(t *testing.T, path string) int {
		t.Helper()
		found, err := mount.Find(ctx, m, path)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	tmpfs := func(target string) mount.FileSystem {
		return mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: target, Options: []string{"size=65536", "nosuid"}}
	}

	t.Run("mount and unmount", func(t *testing.T) {
		target := filepath.Join(dir(t, "with space\t\\#"), "with space\t\\#")
		if err := m.Mount(ctx, tmpfs(target)); err != nil {
			t.Fatal(err)
		}
		found, err := mount.Find(ctx, m, target)
		if err != nil || len(found) != 1 || found[0].Type != "tmpfs" || found[0].Source != "tmpfs" || found[0].Target != target {
			t.Errorf("found %+v (%v)", found, err)
		}
		if err := m.Unmount(ctx, target, mount.Plain); err != nil {
			t.Error(err)
		}
		if err := m.Unmount(ctx, target, mount.Plain); !errors.Is(err, mount.ErrNotMounted) {
			t.Errorf("unmount again: %v", err)
		}
		if err := m.Unmount(ctx, target, mount.Network); !errors.Is(err, mount.ErrNotMounted) {
			t.Errorf("unmount from the network: %v", err)
		}
	})
	t.Run("bind", func(t *testing.T) {
		top := dir(t, "from", "to")
		from, to := filepath.Join(top, "from"), filepath.Join(top, "to")
		if err := m.Bind(ctx, mount.Bind{Source: from, Target: to, ReadOnly: true}); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := m.Bind(ctx, mount.Bind{Source: "the open one", File: f, Target: to}); err != nil {
			t.Fatal(err)
		}
		if n := at(t, to); n != 2 {
			t.Errorf("%d mounts, want 2", n)
		}
		if err := mount.Clean(ctx, m, to, mount.Plain); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory is there: %v", err)
		}
		if err := mount.Clean(ctx, m, to, mount.Plain); err != nil {
			t.Errorf("clean again: %v", err)
		}
	})
	t.Run("bind a file", func(t *testing.T) {
		top := dir(t, "d")
		for _, n := range []string{"from", "to"} {
			if err := os.WriteFile(filepath.Join(top, n), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		to := filepath.Join(top, "to")
		if err := m.Bind(ctx, mount.Bind{Source: filepath.Join(top, "d"), Target: to}); err == nil {
			t.Error("bound a directory on a file; want an error")
		}
		if err := m.Bind(ctx, mount.Bind{Source: filepath.Join(top, "from"), Target: to}); err != nil {
			t.Fatal(err)
		}
		if err := mount.Clean(ctx, m, to, mount.Plain); err != nil || at(t, to) != 0 {
			t.Errorf("%v, %d mounts", err, at(t, to))
		}
	})
	t.Run("refusals leave nothing", func(t *testing.T) {
		top := dir(t, "from", "to")
		link := filepath.Join(top, "link")
		if err := os.Symlink("to", link); err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		for name, err := range map[string]error{
			"no target":       m.Mount(ctx, tmpfs(filepath.Join(top, "none"))),
			"through a link":  m.Mount(ctx, tmpfs(link)),
			"bind to a link":  m.Bind(ctx, mount.Bind{Source: filepath.Join(top, "from"), Target: link}),
			"no source":       m.Bind(ctx, mount.Bind{Source: filepath.Join(top, "none"), Target: filepath.Join(top, "to")}),
			"unmount a link":  m.Unmount(ctx, link, mount.Plain),
			"unmount nothing": m.Unmount(ctx, filepath.Join(top, "none"), mount.Plain),
			"too late":        m.Mount(gone, tmpfs(filepath.Join(top, "to"))),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if n := at(t, filepath.Join(top, "to")) + at(t, link); n != 0 {
			t.Errorf("%d mounts are left", n)
		}
	})
	t.Run("what is mounted below stays", func(t *testing.T) {
		top := dir(t, "a")
		a := filepath.Join(top, "a")
		b := filepath.Join(a, "b")
		if err := m.Mount(ctx, tmpfs(a)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := m.Mount(ctx, tmpfs(b)); err != nil {
			t.Fatal(err)
		}
		if err := m.Unmount(ctx, a, mount.Plain); err == nil {
			t.Error("unmounted a file system below another mount; want an error")
		}
		if err := mount.Clean(ctx, m, a, mount.Plain); err == nil {
			t.Error("Clean of a directory above a mount: no error")
		}
		if at(t, a) != 1 || at(t, b) != 1 {
			t.Errorf("after the refused Unmount and Clean: %d mounts at a, %d at a/b; want 1 and 1", at(t, a), at(t, b))
		}
		if err := errors.Join(mount.Clean(ctx, m, b, mount.Plain), mount.Clean(ctx, m, a, mount.Plain)); err != nil {
			t.Error(err)
		}
	})
	t.Run("clean keeps content", func(t *testing.T) {
		top := dir(t, "full/content")
		file := filepath.Join(top, "file")
		if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("full", filepath.Join(top, "link")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"full", "file", "link"} {
			if err := mount.Clean(ctx, m, filepath.Join(top, name), mount.Plain); err == nil {
				t.Errorf("%s was removed", name)
			}
		}
		if _, err := os.Stat(filepath.Join(top, "full/content")); err != nil {
			t.Error(err)
		}
	})
}
