package mount_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/volumemgr/plugintest"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// rounds is how often an attacker gets a chance; fewer with the walk that only
// old kernels need, and in tests that shall be short.
func rounds(w mount.SubPathWalk) int {
	if w.NoOpenat2 || testing.Short() {
		return 2_000
	}
	return 10_000
}

// attack exchanges base/x, a directory, and base/y, a link to the outside, over
// and over until the test ends.
func attack(t *testing.T, at func(...string) string) (swaps *atomic.Int64) {
	t.Helper()
	must(t, os.MkdirAll(at("base/x/in"), 0o755))
	must(t, os.Symlink(at("outside"), at("base/y")))
	swaps = new(atomic.Int64)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, at("base/x"), unix.AT_FDCWD, at("base/y"), unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
			swaps.Add(1)
		}
	})
	t.Cleanup(func() { close(done); wg.Wait() })
	return swaps
}

// Neither opening nor making directories ever gets outside.
func TestRaceOpenAndMakeDir(t *testing.T) {
	walks(t, func(t *testing.T, w mount.SubPathWalk) {
		_, at := tree(t)
		must(t, os.Mkdir(at("outside/in"), 0o755))
		outside, err := os.Stat(at("outside/in"))
		must(t, err)
		base, err := os.OpenRoot(at("base"))
		must(t, err)
		defer base.Close()
		before := subPathList(t, at("outside"))
		swaps := attack(t, at)
		opened := 0
		for range rounds(w) {
			if f, err := w.Open(at("base"), "x/in"); err == nil {
				opened++
				if is, err := f.Stat(); err != nil || os.SameFile(is, outside) {
					t.Fatalf("escaped (%v)", err)
				}
				_ = f.Close()
			}
			if w.MakeDir(at("base"), "x/new/dir", 0o755) == nil {
				_ = base.RemoveAll("x/new") // stays in base itself
				_ = base.RemoveAll("y/new")
			}
		}
		if after := subPathList(t, at("outside")); after != before {
			t.Errorf("%d directories were made outside", after-before)
		}
		t.Logf("%d of %d opened, %d swaps", opened, rounds(w), swaps.Load())
	})
}

// If links are created while a subpath is mounted, the mounted file is still within the volume.
func TestRaceBind(t *testing.T) {
	plugintest.RequireMounts(t)
	walks(t, func(t *testing.T, w mount.SubPathWalk) {
		_, at := tree(t)
		k := &mount.Kernel{}
		b := newBinder(t, k, w)
		must(t, os.Mkdir(at("outside/in"), 0o755))
		outside, err := os.Stat(at("outside/in"))
		must(t, err)
		swaps := attack(t, at)
		bound := 0
		for range rounds(w) {
			path, err := b.Bind(t.Context(), request(at, "x/in"))
			if err != nil {
				continue
			}
			bound++
			if is, err := os.Stat(path); err != nil || os.SameFile(is, outside) {
				t.Fatalf("escaped (%v)", err)
			}
			// The next round mounts again.
			must(t, k.Unmount(t.Context(), path, mount.Plain))
		}
		must(t, b.Clean(t.Context(), at("pod"), "vol"))
		if _, err := os.Stat(filepath.Join(at("outside"), "in")); err != nil {
			t.Error(err)
		}
		if bound == 0 {
			t.Error("nothing was ever bound")
		}
		t.Logf("%d of %d bound, %d swaps", bound, rounds(w), swaps.Load())
	})
}
