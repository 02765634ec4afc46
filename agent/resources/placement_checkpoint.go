package resources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// placementRecord is what is kept of one pod. It only ever says what the pod had:
// whether it can have that is decided anew.
type placementRecord struct {
	Version int             `json:"version"`
	Pod     numa.Pod        `json:"pod"`
	Policy  string          `json:"cpuPolicy"`
	CPUs    json.RawMessage `json:"cpus,omitempty"`
	Memory  json.RawMessage `json:"memory,omitempty"` // names its policy itself

	raw []byte
}

const checkpointVersion = 1

// file is the checkpoint of a pod in the store.
type file struct {
	busy  chan struct{} // has a token while the file is being written
	users int           // that write or are about to. Part.mu guards it

	// Only the holder of the token in busy uses the next two.
	saved []byte // the content of the file; nil if there is none
	torn  bool   // a write has failed: the content is unknown
}

func newFile(saved []byte) *file { return &file{busy: make(chan struct{}, 1), saved: saved} }

// write makes the checkpoint of a pod say what was decided, which is nothing for a
// pod that was released. Writes for one pod never overlap; a store that hangs
// holds up nobody else. After an error the next Sweep tries again.
func (p *Placement) write(ctx context.Context, uid types.UID) error {
	f := p.use(uid)
	if f == nil {
		return nil
	}
	defer p.unuse(uid, f)
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b, err := p.current(uid)
	if err != nil || !f.torn && bytes.Equal(b, f.saved) {
		return err
	}
	if b == nil {
		err = part.Delete(ctx, p.cfg.Store, string(uid))
	} else {
		err = part.Write(ctx, p.cfg.Store, string(uid), b)
	}
	if f.torn = err != nil; f.torn {
		p.mu.Lock()
		p.stale[uid] = true
		p.mu.Unlock()
		return err
	}
	f.saved = b
	return nil
}

// use returns the file of a pod; nil if it has none and needs none.
func (p *Placement) use(uid types.UID) *file {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[uid]
	if f == nil {
		if p.cfg.Store == nil || p.pods[uid] == nil {
			return nil
		}
		f = newFile(nil)
		p.files[uid] = f
	}
	f.users++
	return f
}

// unuse forgets a file that is not there and that nobody writes.
func (p *Placement) unuse(uid types.UID, f *file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.users--; f.users == 0 && f.saved == nil && !f.torn {
		delete(p.files, uid)
		delete(p.stale, uid)
	}
}

// current is what the checkpoint of a pod has to say, which is not stale with it.
func (p *Placement) current(uid types.UID) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.stale, uid)
	e := p.pods[uid]
	if e == nil {
		return nil, nil
	}
	return p.encode(e.pod, p.node.State)
}

// encode is the checkpoint of a pod, or nil if it has nothing.
func (p *Placement) encode(pod numa.Pod, s fit.State) ([]byte, error) {
	out := placementRecord{Version: checkpointVersion, Pod: pod, Policy: p.cfg.Fit.CPUPolicy}
	var err error
	if _, ok := s.CPU.Pod(pod.UID); ok {
		if out.CPUs, err = s.CPU.EncodePod(pod.UID); err != nil {
			return nil, err
		}
	}
	if out.Memory, err = s.Memory.EncodePod(pod.UID, p.cfg.Fit.MemoryPolicy); err != nil {
		return nil, err
	}
	if out.CPUs == nil && out.Memory == nil {
		return nil, nil
	}
	return json.Marshal(out)
}

// errForeign means that a checkpoint was read, and is none of this part's.
var errForeign = errors.New("checkpoint not understood")

// read returns the checkpoint of a pod. One that is not understood is an errForeign.
func (p *Placement) read(key string) (placementRecord, error) {
	b, err := p.cfg.Store.Read(key)
	if err != nil {
		return placementRecord{}, err
	}
	return decodePlacement(key, b)
}

func decodePlacement(key string, b []byte) (placementRecord, error) {
	out := placementRecord{raw: b}
	if err := json.Unmarshal(b, &out); err != nil {
		return placementRecord{}, fmt.Errorf("%w: %w", errForeign, err)
	}
	if out.Version != checkpointVersion || out.Pod.UID != key {
		return placementRecord{}, fmt.Errorf("%w: version %d of pod %q; want version %d of pod %q", errForeign, out.Version, out.Pod.UID, checkpointVersion, key)
	}
	return out, nil
}

// writeStale brings the checkpoints up to date that are not.
func (p *Placement) writeStale(ctx context.Context) error {
	p.mu.Lock()
	uids := slices.Sorted(maps.Keys(p.stale))
	p.mu.Unlock()
	var errs []error
	for _, uid := range uids {
		if err := p.write(ctx, uid); err != nil {
			errs = append(errs, fmt.Errorf("checkpoint of pod %s: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}
