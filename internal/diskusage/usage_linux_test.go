package diskusage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/diskusage"
)

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// blocks is what the files at paths take.
func blocks(t *testing.T, paths ...string) (n int64) {
	t.Helper()
	for _, p := range paths {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			t.Fatal(err)
		}
		n += st.Blocks * 512
	}
	return n
}

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "sub/b")
	write(t, a, 100_000)
	write(t, b, 5000)
	outside := filepath.Join(t.TempDir(), "outside")
	write(t, outside, 1_000_000)
	if err := errors.Join(os.Link(a, filepath.Join(dir, "sub/a2")), os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")),
		os.Truncate(filepath.Join(dir, "sub/b"), 50<<20)); err != nil {
		t.Fatal(err)
	}
	u, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := blocks(t, dir, a, filepath.Dir(b), b, filepath.Join(dir, "link"))
	if u.Used != want || u.InodesUsed != 5 {
		t.Errorf("used = %d bytes, %d files; want %d, 5: links count once, holes and what links lead to not at all", u.Used, u.InodesUsed, want)
	}
	if u.Capacity <= 0 || u.Available <= 0 || u.At.IsZero() {
		t.Errorf("usage = %+v, want the file system's size too", u)
	}
}

// A volume with too much in it counts for what was seen.
func TestWalkLimits(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		write(t, filepath.Join(dir, strconv.Itoa(i%3), strconv.Itoa(i)), 5000)
	}
	all, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{})
	if err != nil || all.AtLeast || all.InodesUsed != 34 {
		t.Fatalf("%+v, %v", all, err)
	}
	u, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{Files: 20})
	if err != nil || !u.AtLeast || u.InodesUsed != 21 || u.Used < 17*5000 || u.Used >= all.Used || u.Capacity <= 0 {
		t.Errorf("20 files of 33: %+v, %v", u, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if u, err := diskusage.Walk(ctx, dir, diskusage.Limits{}); err != nil || !u.AtLeast || u.InodesUsed != 1 {
		t.Errorf("within a context that ended: %+v, %v", u, err)
	}
	if _, err := diskusage.Walk(t.Context(), filepath.Join(dir, "missing"), diskusage.Limits{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want that nothing is there", err)
	}
}

func TestStatfs(t *testing.T) {
	u, err := diskusage.Statfs(t.TempDir())
	if err != nil || u.Capacity < u.Used || u.Used < 0 {
		t.Errorf("Statfs = %+v, %v", u, err)
	}
	if _, err := diskusage.Statfs(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
}

// A directory of no project has no quota, whatever the file system.
func TestIsMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/proc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/proc": true, "/proc/self": false, dir: false, filepath.Join(dir, "link"): false, filepath.Join(dir, "none"): false} {
		if got := diskusage.IsMount(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

func TestQuotaWithoutProject(t *testing.T) {
	if _, err := diskusage.Quota(t.TempDir()); !errors.Is(err, diskusage.ErrNoQuota) {
		t.Errorf("error = %v, want ErrNoQuota", err)
	}
}
