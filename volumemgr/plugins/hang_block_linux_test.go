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
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// asDevice shows any file as a block device.
type asDevice struct{ fs.FileInfo }

func (asDevice) Mode() fs.FileMode { return fs.ModeDevice | 0o600 }

// slowLoops has calls that wait until it is closed.
type slowLoops struct {
	alive chan struct{}
	calls atomic.Int32
}

func (s *slowLoops) Attach(string, bool) error { s.calls.Add(1); <-s.alive; return nil }
func (s *slowLoops) Detach(string) error       { s.calls.Add(1); <-s.alive; return nil }

// blockVolume is a volume of volumeMode Block, and its plugin.
func blockVolume(t *testing.T, top string, loops loopDevices) (*localPlugin, *volumemgr.Volume) {
	t.Helper()
	p, err := newLocal(localPluginConfig{Mounter: &plugintest.MountMemory{}, Root: top, Loops: loops})
	if err != nil {
		t.Fatal(err)
	}
	p.stat = func(path string) (fs.FileInfo, error) {
		info, err := os.Stat(path)
		return asDevice{info}, err
	}
	disk := filepath.Join(top, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mode := v1.PersistentVolumeBlock
	pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{VolumeMode: &mode, PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: disk}}}}
	return p, &volumemgr.Volume{Spec: &volumemgr.Spec{PersistentVolume: pv}, Name: "pv", UID: "uid", Path: filepath.Join(top, "pods", "uid")}
}

// If any step for a block device hangs, the pod's call still returns in time, and only one
// goroutine waits.
func TestADeadBlockDeviceHoldsNoPod(t *testing.T) {
	for _, c := range []struct {
		name string
		hang func(p *localPlugin, alive chan struct{})
	}{
		{"links", func(p *localPlugin, alive chan struct{}) {
			p.links = func(path string) (string, error) { <-alive; return path, nil }
		}},
		{"another pod", func(p *localPlugin, alive chan struct{}) {
			unlock, err := p.lock(context.Background(), filepath.Join(p.cfg.Root, "disk"))
			if err != nil {
				panic(err)
			}
			go func() { <-alive; unlock() }()
		}},
		{"loop device", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				alive := make(chan struct{})
				var loops loopDevices = &memoryLoops{on: map[string]bool{}}
				if c.hang == nil {
					loops = &slowLoops{alive: alive}
				}
				p, v := blockVolume(t, top, loops)
				if c.hang != nil {
					c.hang(p, alive)
				}
				for range 5 {
					begun := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if _, err := p.MapDevice(ctx, v); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > time.Minute+undoTime {
						t.Fatalf("%v after %v", err, time.Since(begun))
					}
					cancel()
				}
				if n := p.follows.InFlight() + p.loops.InFlight(); n > 1 {
					t.Errorf("%d goroutines wait", n)
				}
				close(alive)
				synctest.Wait()
				if path, err := p.MapDevice(t.Context(), v); err != nil || path != filepath.Join(top, "disk") {
					t.Errorf("afterwards: %q, %v", path, err)
				}
				if len(p.paths) != 0 {
					t.Errorf("%d paths are still locked", len(p.paths))
				}
			})
		})
	}
}
