//go:build linux

package notify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/testrun"
)

// cgroup makes one of our own below a hierarchy, or says why the test cannot.
func cgroup(t *testing.T, root, needs string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, needs)); err != nil {
		t.Skipf("no such hierarchy here: %v", err)
	}
	dir := filepath.Join(root, fmt.Sprintf("nodewright-notify-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Errorf("the cgroup stays: %v", err)
		}
	})
	return dir
}

// hold has a process of the cgroup hold so many bytes, and returns when it has
// ended.
func hold(t *testing.T, dir, bytes string) {
	t.Helper()
	// tail keeps a line without end in memory.
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && head -c %s /dev/zero | tail -n 1 | wc -c", dir, bytes)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
	t.Logf("holding %s: %s %v", bytes, strings.TrimSpace(string(out)), err)
}

// start runs a source until the test ends.
func start(t *testing.T, s *Source) <-chan string {
	t.Helper()
	causes := make(chan string, 64)
	testrun.Start(t, func(ctx context.Context) error {
		return s.Run(ctx, func(c string) {
			select {
			case causes <- c:
			default:
			}
		})
	})
	return causes
}

func await(t *testing.T, causes <-chan string, want string) {
	t.Helper()
	select {
	case c := <-causes:
		if !strings.Contains(c, want) {
			t.Errorf("the cause is %q, want %q", c, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s was not told of", want)
	}
}

// opened returns when a source has set up its triggers.
func opened(t *testing.T, s *Source, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		ready := len(s.levelled) == n
		s.mu.Unlock()
		if ready {
			return
		}
	}
	t.Fatal("the source does not start")
}

func TestKernelUsage(t *testing.T) {
	dir := cgroup(t, "/sys/fs/cgroup/memory", "cgroup.event_control")
	s := New(Usage(dir))
	if err := s.Aim([]int64{1 << 40}); err != nil {
		t.Fatal(err)
	}
	causes := start(t, s)
	opened(t, s, 1)
	hold(t, dir, "20m")
	select {
	case c := <-causes:
		t.Errorf("it woke below the level: %s", c)
	default:
	}
	if err := s.Aim([]int64{8 << 20, 1 << 40}); err != nil {
		t.Fatal(err)
	}
	hold(t, dir, "20m")
	await(t, causes, "memory.usage_in_bytes")
}

func TestKernelPSI(t *testing.T) {
	for _, path := range []string{"/proc/pressure/memory", "/sys/fs/cgroup/memory.pressure", "/sys/fs/cgroup/unified/memory.pressure"} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Logf("%s is not here: %v", path, err)
			continue
		}
		_ = f.Close()
		// That the kernel takes the trigger, and that Run ends while it
		// waits, is all that can be had without starving the machine.
		s := New(PSI(path, 0, 2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := s.Run(ctx, func(string) {}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		cancel()
	}
}

func TestKernelEvents(t *testing.T) {
	dir := cgroup(t, "/sys/fs/cgroup", "cgroup.controllers")
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte("8M"), 0); err != nil {
		t.Skipf("no memory controller here: %v", err)
	}
	_ = os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0) // there may be no swap
	s := New(Events(filepath.Join(dir, "memory.events")), PSI(filepath.Join(dir, "memory.pressure"), time.Millisecond, time.Second))
	causes := start(t, s)
	hold(t, dir, "30m")
	await(t, causes, dir)
}

func TestKernelGone(t *testing.T) {
	// A pipe whose other end is closed stands for a file whose cgroup is
	// removed: poll reports both without what was waited for.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_ = w.Close()
	s := New(gone(r.Fd()))
	if err := s.Run(t.Context(), func(string) { t.Error("it woke") }); err == nil || !strings.Contains(err.Error(), "the file of gone was removed") {
		t.Errorf("Run = %v", err)
	}
}

// gone is a trigger on a descriptor whose file is gone.
type gone int

func (gone) String() string          { return "gone" }
func (gone) check() error            { return nil }
func (g gone) open() (waiter, error) { return g, nil }
func (g gone) fd() int               { return int(g) }
func (gone) mask() int16             { return unix.POLLPRI }
func (gone) read() (string, error)   { return "", nil }
func (gone) close()                  {}
