package usage_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/volumemgr/usage"
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
		var m usage.Meter
		measure := func(wantAge time.Duration, paths ...string) {
			t.Helper()
			u, err := m.Measure(t.Context(), dir, 1<<20, usage.Limits{})
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
	var m usage.Meter
	if _, err := m.Measure(t.Context(), filepath.Join(t.TempDir(), "none"), 1, usage.Limits{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), 5000)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // with a walk, and without one
		if _, err := m.Measure(ended, dir, 1<<40, usage.Limits{}); !errors.Is(err, usage.ErrTooMuch) {
			t.Errorf("with a context that ended: %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var m usage.Meter
		before, err := m.Measure(t.Context(), dir, 1<<40, usage.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if u, err := m.Measure(t.Context(), dir, 1<<40, usage.Limits{Files: 1}); u != before || !errors.Is(err, usage.ErrTooMuch) {
			t.Errorf("%+v, %v; want what was known before, %+v", u, err, before)
		}
	})
}

// A directory of 1,000 files in which nothing happens.
func BenchmarkMeterAtRest(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	var m usage.Meter
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Measure(b.Context(), dir, 1<<40, usage.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
