package plugins

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/volumemgr"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// A path whose server is dead holds one goroutine, however often it is tried.
func TestLocalDeadServerHoldsOneGoroutine(t *testing.T) {
	top := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := newLocal(localPluginConfig{Mounter: &mount.Kernel{}, Root: top})
		if err != nil {
			t.Fatal(err)
		}
		alive := make(chan struct{})
		var calls atomic.Int32
		p.stat = func(path string) (fs.FileInfo, error) {
			calls.Add(1)
			<-alive
			return os.Stat(path)
		}
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: top}}}}
		v := &volumemgr.Volume{Spec: &volumemgr.Spec{PersistentVolume: pv}, Name: "pv", Path: filepath.Join(top, "v")}
		for range 1000 {
			if _, err := p.Device(v); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Device: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := p.SetUp(ctx, v); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("SetUp: %v", err)
			}
			cancel()
		}
		if n := p.looks.InFlight(); n != 1 || calls.Load() != 1 {
			t.Errorf("%d goroutines after %d calls", n, calls.Load())
		}
		close(alive)
		synctest.Wait()
		if d, err := p.Device(v); err != nil || d.Name != "" {
			t.Errorf("%+v, %v", d, err)
		}
	})
}
