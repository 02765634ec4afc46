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

// placementRecord is the checkpoint of a pod: its allocation. After a restart, a new decision is
// made on whether the pod can keep it.
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
	busy  chan struct{} // has a value while the file is being written
	users int           // writers and waiting writers; guarded by Placement.mu

	// Only the holder of busy uses these fields.
	saved []byte // content of the file; nil if there is none
	torn  bool   // a write failed, so the content is unknown
}

func newFile(saved []byte) *file { return &file{busy: make(chan struct{}, 1), saved: saved} }

// write writes the decisions on a pod to its checkpoint. If the pod was released, write removes
// the checkpoint. Writes for one pod do not overlap. A store that hangs delays no other pod.
// After an error, the next Sweep tries again.
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

// use returns the checkpoint file of a pod and marks it as in use. It returns nil if the pod has
// no checkpoint and needs none.
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

// unuse drops the entry of a file that does not exist in the store and that no call is
// writing.
func (p *Placement) unuse(uid types.UID, f *file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.users--; f.users == 0 && f.saved == nil && !f.torn {
		delete(p.files, uid)
		delete(p.stale, uid)
	}
}

// current returns the content of a pod's checkpoint for the current decisions, and marks the
// checkpoint as up to date.
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

// encode encodes the checkpoint of a pod. It returns nil if the pod has no allocated resources.
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

// errForeign means that a checkpoint could be read but has an unknown content.
var errForeign = errors.New("checkpoint not understood")

// read returns the checkpoint of a pod. For an unknown content the error is errForeign.
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

// writeStale writes the checkpoints again whose content on disk is out of date.
func (p *Placement) writeStale(ctx context.Context) error {
	p.mu.Lock()
	uids := slices.Sorted(maps.Keys(p.stale))
	p.mu.Unlock()
	var errs []error
	for _, uid := range uids {
		if err := p.write(ctx, uid); err != nil {
			errs = append(errs, fmt.Errorf("write checkpoint of pod %s: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}
