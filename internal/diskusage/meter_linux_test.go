package diskusage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/diskusage"
)

// In a bubble a walk takes no time, so that every change on the file system is
// worth one; nobody else has this file system.
func TestMeter(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("meter", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skip("a file system of the test's own: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	synctest.Test(t, func(t *testing.T) {
		var m diskusage.Meter
		measure := func(wantAge time.Duration, paths ...string) {
			t.Helper()
			u, err := m.Measure(t.Context(), dir, 1<<20, diskusage.Limits{})
			if want := blocks(t, append(paths, dir)...); err != nil || u.Used != want || time.Since(u.At) != wantAge {
				t.Errorf("%d bytes %v ago, %v; want %d, %v ago", u.Used, time.Since(u.At), err, want, wantAge)
			}
		}
		a := filepath.Join(dir, "a")
		measure(0)
		time.Sleep(10 * time.Second)
		measure(10 * time.Second)
		write(t, a, 100_000)
		measure(0, a)
		time.Sleep(59 * time.Second)
		measure(59*time.Second, a)
		time.Sleep(time.Second)
		measure(0, a)
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
		measure(0)
	})
}

func TestMeterFails(t *testing.T) {
	var m diskusage.Meter
	if _, err := m.Measure(t.Context(), filepath.Join(t.TempDir(), "none"), 1, diskusage.Limits{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

// A volume that has more files than one walk may look at is known to hold more
// and more, until all of it is known; and does not shrink then.
func TestMeterGoesOn(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		write(t, filepath.Join(dir, strconv.Itoa(i%5), strconv.Itoa(i)), 5000)
	}
	synctest.Test(t, func(t *testing.T) {
		var m diskusage.Meter
		all, err := diskusage.Walk(t.Context(), dir, diskusage.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		last := diskusage.Usage{}
		for walk := range 9 {
			u, err := m.Measure(t.Context(), dir, 1<<40, diskusage.Limits{Files: 12})
			if err != nil {
				t.Fatal(err)
			}
			if want := walk%5 != 4; u.AtLeast != want || !u.At.Equal(time.Now()) {
				t.Errorf("walk %d: lower bound %t, want %t; at %v", walk, u.AtLeast, want, u.At)
			}
			if walk < 5 && u.Used <= last.Used || walk >= 4 && u.Used != all.Used || u.InodesUsed > all.InodesUsed {
				t.Errorf("walk %d: %d bytes after %d, of %d", walk, u.Used, last.Used, all.Used)
			}
			last = u
			time.Sleep(time.Minute)
		}
	})
}
