package resources

import (
	"context"
	"fmt"
	"maps"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Sweep implements part.Sweeper: it drops what is kept of pods that known does
// not report, and removes their records. One that cannot be removed is tried
// again by the next sweep.
func (p *Resize) Sweep(ctx context.Context, known func(types.UID) bool) error {
	p.forget(known)
	keys, err := p.cfg.Store.Keys()
	if err != nil {
		return fmt.Errorf("list allocation records: %w", err)
	}
	for _, key := range keys {
		if key == kubeletKey {
			continue
		}
		o := p.remove(types.UID(key), known)
		if o == nil {
			continue
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if o.err != nil {
			p.cfg.Log.Warn("failed to remove stale allocation record", zap.String("uid", key), zap.Error(o.err))
		}
	}
	return nil
}

// forget drops what is known of pods in memory.
func (p *Resize) forget(known func(types.UID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, waiting := range []map[types.UID]*allocation{p.read, p.left} {
		maps.DeleteFunc(waiting, func(uid types.UID, _ *allocation) bool { return !known(uid) })
	}
	for uid, s := range p.pods {
		if !known(uid) {
			p.endWait(s)
			p.finish(s)
			delete(p.pods, uid)
		}
	}
}

// remove begins to remove a record; nil if the pod is known, or its record is
// being written still. A pod that comes back meanwhile has it written anew.
func (p *Resize) remove(uid types.UID, known func(types.UID) bool) *resizeOp {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known(uid) || p.ops[uid] != nil {
		return nil
	}
	return p.begin(uid, func() error { return p.cfg.Store.Delete(string(uid)) }, func(s *state) { s.recorded = nil })
}
