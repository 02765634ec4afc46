package mount_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

func TestMemory(t *testing.T) { plugintest.ConformMounter(t, &plugintest.MountMemory{}) }

func TestKernel(t *testing.T) {
	plugintest.RequireMounts(t)
	plugintest.ConformMounter(t, &mount.Kernel{})
}

func TestClassicKernel(t *testing.T) {
	plugintest.RequireMounts(t)
	plugintest.ConformMounter(t, &mount.Kernel{Classic: true})
}

func both(t *testing.T, f func(t *testing.T, k *mount.Kernel)) {
	plugintest.RequireMounts(t)
	t.Run("new", func(t *testing.T) { f(t, &mount.Kernel{}) })
	t.Run("classic", func(t *testing.T) { f(t, &mount.Kernel{Classic: true}) })
}

// Share reaches the mount that contains a directory.
func TestShare(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	base := dirs(t, k, "a/b")
	must(t, k.Bind(t.Context(), mount.Bind{Source: base("a"), Target: base("a"), Propagation: mount.Private}))
	tags := func() string {
		table, err := k.Table(t.Context())
		must(t, err)
		return strings.Join(table.At(base("a"))[0].Tags, " ")
	}
	if got := tags(); got != "" {
		t.Fatalf("the private mount has the tags %q", got)
	}
	for range 2 {
		must(t, k.Share(t.Context(), base("a", "b")))
		if got := tags(); !strings.HasPrefix(got, "shared:") {
			t.Errorf("the mount has the tags %q, want it to be shared", got)
		}
	}
	if err := k.Share(t.Context(), base("none")); err != nil {
		t.Errorf("a missing directory, whose mount is that of its parent: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dirs makes directories in a tmpfs of its own, with a shared or private mount.
func dirs(t *testing.T, k *mount.Kernel, names ...string) func(...string) string {
	t.Helper()
	top := t.TempDir()
	must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: top}))
	t.Cleanup(func() {
		table, err := k.Table(context.Background())
		must(t, err)
		for _, e := range slices.Backward(append(table.At(top), table.Below(top)...)) {
			// Some go with others that they were copies of.
			if err := k.Unmount(context.Background(), e.Target, mount.Network); !errors.Is(err, mount.ErrNotMounted) {
				must(t, err)
			}
		}
	})
	for _, n := range names {
		must(t, os.MkdirAll(filepath.Join(top, n), 0o755))
	}
	return func(name ...string) string { return filepath.Join(append([]string{top}, name...)...) }
}

func writable(dir string) bool {
	name := filepath.Join(dir, "probe")
	err := os.WriteFile(name, nil, 0o600)
	_ = os.Remove(name)
	return err == nil
}

func entry(t *testing.T, k *mount.Kernel, target string) mount.Entry {
	t.Helper()
	found, err := mount.Find(t.Context(), k, target)
	must(t, err)
	if len(found) == 0 {
		t.Fatalf("%s is not mounted", target)
	}
	return found[len(found)-1]
}

func TestBindKeepsTheFlagsOfItsSource(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "from", "to")
		must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: at("from"), Options: []string{"nosuid", "noexec"}}))
		must(t, k.Bind(t.Context(), mount.Bind{Source: at("from"), Target: at("to"), ReadOnly: true, Options: []string{"nodev"}}))
		got := entry(t, k, at("to")).Options
		for _, want := range []string{"ro", "nosuid", "noexec", "nodev"} {
			if !slices.Contains(got, want) {
				t.Errorf("options %q lack %s", got, want)
			}
		}
		if writable(at("to")) || !writable(at("from")) {
			t.Error("the wrong one is read-only")
		}
	})
}

func TestReadOnlyBelow(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "from/sub", "plain", "recursive")
		must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: at("from/sub")}))
		must(t, k.Bind(t.Context(), mount.Bind{Source: at("from"), Target: at("plain"), Recursive: true, ReadOnly: true}))
		if writable(at("plain")) || !writable(at("plain/sub")) {
			t.Error("plain read-only is for the top only")
		}
		err := k.Bind(t.Context(), mount.Bind{Source: at("from"), Target: at("recursive"), Recursive: true, ReadOnly: true, RecursiveReadOnly: true})
		if k.Classic {
			found, ferr := mount.Find(t.Context(), k, at("recursive"))
			if !errors.Is(err, mount.ErrRecursiveReadOnly) || ferr != nil || len(found) != 0 {
				t.Errorf("error %v, mounted %v", err, found)
			}
			return
		}
		must(t, err)
		if writable(at("recursive")) || writable(at("recursive/sub")) || !writable(at("from/sub")) {
			t.Error("recursive read-only is for all below, and for nothing else")
		}
	})
}

func TestPropagation(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "top", "a", "b", "c")
		// A shared place, as the agent's own directory is.
		must(t, k.Bind(t.Context(), mount.Bind{Source: at("top"), Target: at("top"), Propagation: mount.Shared}))
		must(t, os.MkdirAll(at("top/from/sub"), 0o755))
		for name, p := range map[string]mount.Propagation{"a": mount.Private, "b": mount.Slave, "c": mount.Shared} {
			must(t, k.Bind(t.Context(), mount.Bind{Source: at("top/from"), Target: at(name), Propagation: p}))
		}
		must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: at("top/from/sub")}))
		for name, want := range map[string]int{"a": 0, "b": 1, "c": 1} {
			found, err := mount.Find(t.Context(), k, at(name, "sub"))
			if err != nil || len(found) != want {
				t.Errorf("%s: %d mounts came along (%v), want %d", name, len(found), err, want)
			}
		}
		if tags := entry(t, k, at("a")).Tags; len(tags) != 0 {
			t.Errorf("private has the tags %q", tags)
		}
		if tags := strings.Join(entry(t, k, at("b")).Tags, " "); !strings.Contains(tags, "master:") || strings.Contains(tags, "shared:") {
			t.Errorf("slave has the tags %q", tags)
		}
	})
}

// The opened file is mounted, even if its path leads elsewhere meanwhile.
func TestBindAnOpenFile(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "good/mine", "bad", "to")
		f, err := os.Open(at("good"))
		must(t, err)
		defer f.Close()
		must(t, os.Rename(at("good"), at("moved")))
		must(t, os.Symlink("bad", at("good")))
		must(t, k.Bind(t.Context(), mount.Bind{Source: at("good"), File: f, Target: at("to")}))
		if _, err := os.Stat(at("to/mine")); err != nil {
			t.Error(err)
		}
	})
}

func TestRefusals(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "from", "to")
		for name, b := range map[string]mount.Bind{
			"recursive read-only, not read-only": {RecursiveReadOnly: true},
			"propagation":                        {Propagation: "sideways"},
			"an option of a file system":         {Options: []string{"size=4k"}},
			"another operation":                  {Options: []string{"remount"}},
		} {
			b.Source, b.Target = at("from"), at("to")
			if err := k.Bind(t.Context(), b); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		for name, f := range map[string]mount.FileSystem{
			"no such type":      {Type: "nonesuch"},
			"a bad size":        {Type: "tmpfs", Options: []string{"size=garbage"}},
			"another operation": {Type: "tmpfs", Options: []string{"bind"}},
		} {
			f.Target = at("to")
			if err := k.Mount(t.Context(), f); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if found, err := mount.Find(t.Context(), k, at("to")); err != nil || len(found) > 0 {
			t.Errorf("mounted: %v (%v)", found, err)
		}
	})
}

// A mount program gets the options, fails with its own words, and is killed
// with its children at the deadline.
func TestHelper(t *testing.T) {
	plugintest.RequireMounts(t)
	k := &mount.Kernel{}
	at := dirs(t, k, "to")
	program := func(text string) string {
		name := at("program")
		must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755))
		return name
	}
	f := mount.FileSystem{Type: "tmpfs", Source: "server:/path", Target: at("to"), Options: []string{"nosuid", "size=64k"}, Helper: true}
	must(t, k.Mount(t.Context(), f))
	if e := entry(t, k, at("to")); e.Source != "server:/path" || !slices.Contains(e.Options, "nosuid") {
		t.Errorf("mounted %+v", e)
	}
	must(t, k.Unmount(t.Context(), at("to"), mount.Network))

	k.Program = program("echo $* >&2; exit 32")
	if err := k.Mount(t.Context(), f); err == nil || !strings.Contains(err.Error(), "-t tmpfs -o nosuid,size=64k -- server:/path "+at("to")) {
		t.Errorf("error %v", err)
	}
	// It reports that it runs through a pipe, which waits for its reader.
	must(t, syscall.Mkfifo(at("started"), 0o600))
	k.Program = program("echo > " + at("started") + "; sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if _, err := os.ReadFile(at("started")); err != nil {
			t.Error(err)
		}
	}()
	if err := k.Mount(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A mount that is in use goes at last: detached.
func TestNetworkUnmountDetaches(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "to")
		must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: at("to")}))
		f, err := os.Create(at("to/open"))
		must(t, err)
		defer f.Close()
		if err := k.Unmount(t.Context(), at("to"), mount.Plain); err == nil {
			t.Error("unmounted while in use")
		}
		must(t, k.Unmount(t.Context(), at("to"), mount.Network))
		if found, err := mount.Find(t.Context(), k, at("to")); err != nil || len(found) > 0 {
			t.Errorf("mounted: %v (%v)", found, err)
		}
	})
}

// Under finds what is mounted at a directory and anywhere below, in small trees, of which the table
// is not read, and in large ones.
func TestUnder(t *testing.T) {
	both(t, func(t *testing.T, k *mount.Kernel) {
		at := dirs(t, k, "few/a/b", "many/a/b", "none/a")
		for i := range 100 {
			must(t, os.WriteFile(at("many", fmt.Sprint(i)), nil, 0o600))
		}
		must(t, os.Symlink(at("few"), at("none", "link")))
		must(t, os.WriteFile(at("few", "file"), nil, 0o600))
		under := func(dir string) (targets []string) {
			t.Helper()
			table, err := k.Under(t.Context(), at(dir))
			must(t, err)
			for _, e := range table {
				targets = append(targets, e.Target)
			}
			return targets
		}
		for _, dir := range []string{"few", "many", "none", "missing"} {
			if got := under(dir); len(got) > 0 {
				t.Errorf("mounts below %s: %v, want none", dir, got)
			}
		}
		for _, dir := range []string{"few", "many"} {
			must(t, k.Mount(t.Context(), mount.FileSystem{Type: "tmpfs", Source: "tmpfs", Target: at(dir, "a", "b")}))
			if got := under(dir); !slices.Equal(got, []string{at(dir, "a", "b")}) {
				t.Errorf("mounts below %s: %v, want one", dir, got)
			}
		}
		must(t, k.Bind(t.Context(), mount.Bind{Source: at("few", "file"), Target: at("few", "file")}))
		if got := under("few"); len(got) != 2 {
			t.Errorf("mounts below few: %v, want that of the file, too", got)
		}
		if got := under("none"); len(got) > 0 {
			t.Errorf("mounts below none, which has a link to others: %v", got)
		}
	})
}
