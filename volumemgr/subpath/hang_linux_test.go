package subpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// noMounter has nothing mounted, and mounts nothing.
type noMounter struct{ mount.Mounter }

func (noMounter) Table(context.Context) (mount.Table, error) { return nil, nil }
func (noMounter) Bind(context.Context, mount.Bind) error     { return nil }

// A volume whose server is dead holds one goroutine for each mount, and nobody
// longer than two minutes.
func TestDeadServerHoldsOneGoroutine(t *testing.T) {
	top := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(top, "base/a"), 0o755))
	synctest.Test(t, func(t *testing.T) {
		b := newBinder(t, noMounter{}, Walk{})
		alive := make(chan struct{})
		var calls atomic.Int32
		b.opened = func(r Request) (opened, error) {
			calls.Add(1)
			<-alive
			return b.open(r)
		}
		r := Request{PodDir: filepath.Join(top, "pod"), Volume: "vol", VolumePath: filepath.Join(top, "base"), Container: "c", SubPath: "a"}
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
