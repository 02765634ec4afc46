package fsgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
)

// A pod may make as deep a tree as it likes for the next one to start with.
func TestDepthCostsNoDescriptorsAndLittleMemory(t *testing.T) {
	needRoot(t)
	depth := 9900
	if testing.Short() || race {
		depth = 1000
	}
	root, err := os.MkdirTemp("/dev/shm", "fsgroup")
	if err != nil {
		root = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	name := strings.Repeat("n", 255)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o700))
		must(t, unix.Mknodat(fd, "file", unix.S_IFREG|0o600, 0))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	deepest := fd
	defer func() { _ = unix.Close(deepest) }()

	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	now := was
	now.Cur = uint64(len(open) + dirwalk.Descriptors + 4)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &now))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()

	// The heap is about what lives, and not what waits to be collected.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	done := int64(0)
	must(t, Apply(t.Context(), Request{Root: root, GID: gid, Progress: func(n int64, _ bool) { done = n }}))
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB after %d files", grown>>20, done)
	}
	var st unix.Stat_t
	must(t, unix.Fstat(deepest, &st))
	if mode, g := owner(t, root); st.Gid != gid || g != gid || mode.Perm()&0o070 != 0o070 {
		t.Errorf("the deepest directory has group %d; the root %d, %v", st.Gid, g, mode)
	}
}

// What cannot be done deep below keeps the directories above it as they are,
// and nothing else.
func TestFailureDeepBelow(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	deep := filepath.Join(root, strings.Repeat("d/", 2*dirwalk.Held))
	must(t, os.MkdirAll(filepath.Join(deep, "bad"), 0o700))
	must(t, os.MkdirAll(filepath.Join(deep, "good"), 0o700))
	must(t, os.MkdirAll(filepath.Join(root, "good"), 0o700))
	failing := errors.New("failing")
	w := &applying{walker: walker{Request: Request{Root: root, GID: gid}}}
	w.ctx = eachStep{t.Context(), func() {
		if w.tree.Name() == "bad" {
			w.fail(failing)
		}
	}}
	var err error
	w.tree, err = dirwalk.Open(root)
	must(t, err)
	defer w.tree.Close()
	var st unix.Stat_t
	must(t, unix.Lstat(root, &st))
	w.dev = uint64(st.Dev) //nolint:unconvert // 32 bits on some machines
	must(t, w.walk())
	if err := w.failed.err(); !errors.Is(err, failing) || w.failed.n != 1 {
		t.Errorf("%v, want the one error", err)
	}
	for path, want := range map[string]bool{"good": true, "d": false, strings.Repeat("d/", 30): false} {
		if _, g := owner(t, filepath.Join(root, path)); (g == gid) != want {
			t.Errorf("%.20s: group %d", path, g)
		}
	}
	if _, g := owner(t, filepath.Join(deep, "good")); g != gid {
		t.Error("a sibling was left out")
	}
}

// eachStep is asked at each step of a walk whether it has ended.
type eachStep struct {
	context.Context
	f func()
}

func (c eachStep) Err() error {
	c.f()
	return c.Context.Err()
}
