package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// noMounter has nothing mounted, and mounts nothing.
type noMounter struct{ Mounter }

func (noMounter) Table(context.Context) (Table, error) { return nil, nil }
func (noMounter) Bind(context.Context, Bind) error     { return nil }

// A volume whose server is dead blocks one goroutine for each mount, and callers at most two
// minutes.
func TestSubPathDeadServerHoldsOneGoroutine(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "base/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := NewSubPathBinder(SubPathConfig{Mounter: noMounter{}})
		if err != nil {
			t.Fatal(err)
		}
		alive := make(chan struct{})
		var calls atomic.Int32
		b.opened = func(r SubPathRequest) (opened, error) {
			calls.Add(1)
			<-alive
			return b.open(r)
		}
		r := SubPathRequest{PodDir: filepath.Join(top, "pod"), Volume: "vol", VolumePath: filepath.Join(top, "base"), Container: "c", SubPath: "a"}
		began := time.Now()
		for range 100 {
			if _, err := b.Bind(t.Context(), r); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v", err)
			}
		}
		if n := b.sources.InFlight(); n != 1 || calls.Load() != 1 || time.Since(began) != 100*deadline {
			t.Errorf("%d goroutines after %d calls in %v", n, calls.Load(), time.Since(began))
		}
		close(alive)
		synctest.Wait()
		if path, err := b.Bind(t.Context(), r); err != nil || path != filepath.Join(top, "pod/volume-subpaths/vol/c/0") {
			t.Errorf("%q, %v", path, err)
		}
	})
}
