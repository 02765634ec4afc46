package diskusage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
	"github.com/nodewright/nodewright/internal/diskusage"
)

// A path that is longer than the kernel takes hides nothing.
func TestDeepDirectoriesCount(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 300
	name := strings.Repeat("n", 200)
	for range depth {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	defer func() { _ = unix.Close(fd) }()
	file, err := unix.Openat(fd, "hidden", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(file, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(file)

	u, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{})
	if err != nil || u.AtLeast || u.Used < 1<<20 || u.InodesUsed != depth+2 {
		t.Errorf("%+v, %v; want a MiB in %d files", u, err, depth+2)
	}
	// A few files at a time are enough to find it.
	var s diskusage.Survey
	for call := 1; ; call++ {
		u, err := s.Walk(t.Context(), dir, diskusage.Limits{Files: 50})
		if err != nil || call > 20 {
			t.Fatalf("call %d: %+v, %v", call, u, err)
		}
		if s.Unfinished() != u.AtLeast {
			t.Errorf("call %d: unfinished %t, lower bound %t", call, s.Unfinished(), u.AtLeast)
		}
		if !u.AtLeast {
			if u.Used < 1<<20 || u.InodesUsed != depth+2 {
				t.Errorf("%+v; want a MiB in %d files", u, depth+2)
			}
			break
		}
	}
}

// Of more files with several links than are remembered each name counts for its
// share, which comes to the same.
func TestManyLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 100,000 links")
	}
	dir, err := os.MkdirTemp("/dev/shm", "usage")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const files = 40_000
	for i := range files {
		a, b := filepath.Join(dir, fmt.Sprint("a", i)), filepath.Join(dir, fmt.Sprint("b", i))
		if err := os.WriteFile(a, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(a, b); err != nil {
			t.Fatal(err)
		}
	}
	u, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{})
	if err != nil || u.AtLeast {
		t.Fatalf("%+v, %v", u, err)
	}
	each := blocks(t, filepath.Join(dir, "a0"))
	if want := files*each + blocks(t, dir); u.Used != want || u.InodesUsed != files+1 {
		t.Errorf("%d bytes in %d files; want %d in %d", u.Used, u.InodesUsed, want, files+1)
	}
}

// A directory that is moved away from where a survey was leaves a lower bound,
// until the next round.
func TestSomethingMovesMeanwhile(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat("d/", 2*dirwalk.Held))
	if err := os.MkdirAll(filepath.Join(deep, "x/y"), 0o700); err != nil {
		t.Fatal(err)
	}
	var s diskusage.Survey
	if u, err := s.Walk(t.Context(), dir, diskusage.Limits{Files: 2*dirwalk.Held + 2}); err != nil || !u.AtLeast {
		t.Fatalf("%+v, %v", u, err)
	}
	if err := os.Rename(filepath.Join(deep, "x"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Walk(t.Context(), dir, diskusage.Limits{}); err != nil || !u.AtLeast || s.Unfinished() {
		t.Errorf("%+v, %v; want a lower bound, and the end", u, err)
	}
	if u, err := s.Walk(t.Context(), dir, diskusage.Limits{}); err != nil || u.AtLeast || u.InodesUsed != 2*dirwalk.Held+3 {
		t.Errorf("%+v, %v; want all of it", u, err)
	}
}
