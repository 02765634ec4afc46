package usage

import (
	"context"
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/diskusage"
)

// Writable layers are measured on request, at most once per layerKept. A caller waits
// at most layerTimeout for the result; after that it gets the previous one.
const (
	layerKept    = 10 * time.Second
	layerTimeout = time.Second
	layerLife    = 10 * time.Minute // of a result that is not requested
	maxLayers    = 8192
)

// Layer is the writable layer of a container: the upper directory and the workdir of its overlay,
// "" if there is none.
type Layer struct{ Upper, Work string }

// layers measures writable layers. The zero value is ready.
type layers struct {
	walks detached.Group[diskusage.Usage]

	mu   sync.Mutex
	last map[string]diskusage.Usage
}

// measure returns the usage of a layer; nil if no measurement has ended yet. If the workdir has a
// project, the kernel counts the usage of both directories.
func (l *layers) measure(ctx context.Context, layer Layer, mountpoint string) *runtimeapi.FilesystemUsage {
	now, dir := time.Now(), layer.Upper
	l.mu.Lock()
	u, ok := l.last[dir]
	l.mu.Unlock()
	if !ok || now.Sub(u.At) >= layerKept {
		wait, cancel := context.WithTimeout(ctx, layerTimeout)
		fresh, err := l.walks.Do(wait, dir, func() (diskusage.Usage, error) {
			u, err := diskusage.Quota(layer.Work)
			if err != nil {
				u, err = diskusage.Walk(context.Background(), dir, diskusage.Limits{})
			}
			if err == nil {
				l.keep(dir, u)
			}
			return u, err
		})
		cancel()
		if err == nil {
			u, ok = fresh, true
		}
	}
	if !ok || u.Used < 0 {
		return nil
	}
	out := &runtimeapi.FilesystemUsage{
		Timestamp: u.At.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: mountpoint}, UsedBytes: &runtimeapi.UInt64Value{Value: uint64(u.Used)},
	}
	if u.InodesUsed >= 0 {
		out.InodesUsed = &runtimeapi.UInt64Value{Value: uint64(u.InodesUsed)}
	}
	return out
}

func (l *layers) keep(dir string, u diskusage.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[string]diskusage.Usage{}
	}
	if len(l.last) >= maxLayers {
		maps.DeleteFunc(l.last, func(_ string, old diskusage.Usage) bool { return u.At.Sub(old.At) >= layerLife })
		if len(l.last) > maxLayers/2 { // otherwise each call would do this
			clear(l.last)
		}
	}
	l.last[dir] = u
}
