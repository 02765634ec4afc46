package rmtree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
	"github.com/nodewright/nodewright/internal/rmtree"
)

// chain makes a chain of directories below dir, with what fill puts beside each.
func chain(t testing.TB, dir, name string, depth int, fill func(fd, level int)) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for level := range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		if fill != nil {
			fill(fd, level)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
}

// inMemory is a directory for many files, on a file system in memory if there
// is one.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rmtree")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// limited lets the process have few descriptors more than it has, so that
// whoever needs more fails.
func limited(t testing.TB, more int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	now := was
	now.Cur = uint64(len(open) + more)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &now))
	t.Cleanup(func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) })
}

// peak is by how many bytes the heap had to grow for f.
func peak(f func()) int64 {
	// The heap is about what lives, and not what waits to be collected.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&now)
	return int64(now.HeapSys) - int64(before.HeapSys)
}

func TestDepthCostsNoDescriptorsAndLittleMemory(t *testing.T) {
	depth := 20_000
	if testing.Short() || race {
		depth = 2000
	}
	for _, name := range []string{"..deep.0", strings.Repeat("n", 255)} {
		for what, remove := range map[string]func(string) error{"Remove": rmtree.Remove, "RemoveDirs": rmtree.RemoveDirs} {
			t.Run(fmt.Sprintf("%s %.10s", what, name), func(t *testing.T) {
				tree := filepath.Join(inMemory(t), "tree")
				must(t, os.Mkdir(tree, 0o755))
				chain(t, tree, name, depth, func(fd, level int) {
					if level%7 == 0 { // those that an earlier version wanted for itself
						for n := range 3 {
							_ = unix.Mkdirat(fd, fmt.Sprintf("..deep.%d", n), 0o755)
						}
					}
				})
				limited(t, dirwalk.Descriptors+4)
				var err error
				if grown := peak(func() { err = remove(tree) }); grown > 16<<20 {
					t.Errorf("the heap grew by %d MiB", grown>>20)
				}
				must(t, err)
				if exists(tree) {
					t.Error("the tree stayed")
				}
			})
		}
	}
}

func TestWidthCostsLittleMemory(t *testing.T) {
	files := 400_000
	if testing.Short() || race {
		files = 20_000
	}
	tree := filepath.Join(inMemory(t), "tree")
	must(t, os.Mkdir(tree, 0o755))
	fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for i := range files {
		must(t, unix.Mknodat(fd, fmt.Sprintf("%0100d", i), unix.S_IFREG|0o600, 0))
	}
	must(t, unix.Close(fd))
	if grown := peak(func() { err = rmtree.Remove(tree) }); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	must(t, err)
	if exists(tree) {
		t.Error("the tree stayed")
	}
}

// What cannot be removed keeps nothing else, however deep either is.
func TestDeepMountPoint(t *testing.T) {
	top := t.TempDir()
	outside, tree := filepath.Join(top, "outside"), filepath.Join(top, "tree")
	must(t, os.MkdirAll(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	point := filepath.Join(tree, strings.Repeat("d/", 3*dirwalk.Held), "point")
	must(t, os.MkdirAll(point, 0o755))
	beside := 0
	chain := tree
	for range 3 * dirwalk.Held {
		chain = filepath.Join(chain, "d")
		for _, n := range []string{"a", "e", "zz"} {
			must(t, os.MkdirAll(filepath.Join(chain, n, "x/y"), 0o755))
			beside++
		}
	}
	if err := unix.Mount(outside, point, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mount: %v (needs CAP_SYS_ADMIN)", err)
	}
	mounted := true
	unmount := func() {
		if mounted {
			mounted = false
			must(t, unix.Unmount(point, unix.MNT_DETACH))
		}
	}
	t.Cleanup(unmount)
	if err := rmtree.Remove(tree); !errors.Is(err, rmtree.ErrMountPoint) || len(err.Error()) > 10_000 {
		t.Errorf("Remove = %v, want ErrMountPoint", err)
	}
	left := 0
	for chain = tree; exists(filepath.Join(chain, "d")); {
		chain = filepath.Join(chain, "d")
		names, err := os.ReadDir(chain)
		must(t, err)
		left += len(names) - 1
	}
	if left != 0 || !exists(point) || !exists(filepath.Join(outside, "kept")) {
		t.Errorf("%d of %d directories beside the mount point stayed; the mount point: %t", left, beside, exists(point))
	}
	unmount()
	must(t, rmtree.Remove(tree))
	if exists(tree) {
		t.Error("the tree stayed")
	}
}

// Whoever moves directories about while they are removed gains nothing: what is
// outside stays, the removal comes to an end, and the next one finishes.
func TestRacingRenames(t *testing.T) {
	rounds := 20
	if testing.Short() || race {
		rounds = 3
	}
	top := inMemory(t)
	outside := filepath.Join(top, "outside")
	must(t, os.MkdirAll(filepath.Join(outside, "d/d/d"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "d/kept"), nil, 0o600))
	tree := filepath.Join(top, "tree")
	for range rounds {
		for _, b := range []string{"a", "b"} {
			must(t, os.MkdirAll(filepath.Join(tree, b, strings.Repeat("d/", 3*dirwalk.Held)), 0o755))
		}
		var end atomic.Bool
		var racers sync.WaitGroup
		for i := range 2 {
			racers.Go(func() {
				for n := i; !end.Load(); n++ {
					a := filepath.Join(tree, "a", strings.Repeat("d/", n%(3*dirwalk.Held)))
					b := filepath.Join(tree, "b", strings.Repeat("d/", (n+7)%(3*dirwalk.Held)))
					_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
					_ = os.Rename(a, filepath.Join(b, "moved"))
					_ = os.Symlink(outside, filepath.Join(b, "link"))
					_ = os.Mkdir(filepath.Join(tree, fmt.Sprint("new", n%100)), 0o755)
				}
			})
		}
		_ = rmtree.Remove(tree) // it may fail, but not hang
		end.Store(true)
		racers.Wait()
		must(t, rmtree.Remove(tree))
		if exists(tree) || !exists(filepath.Join(outside, "d/kept")) || !exists(filepath.Join(outside, "d/d/d")) {
			t.Fatal("the tree stayed, or what is outside did not")
		}
	}
}
