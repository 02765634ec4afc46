package resources

import (
	"context"
	"fmt"
	"maps"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Sweep implements part.Sweeper: it drops the state of unknown pods and removes their records. The
// next sweep repeats a failed removal.
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

// forget removes unknown pods from the maps in memory.
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

// remove starts to remove a record. It returns nil, without removing the record, if the pod is
// known or an operation on its record is running. If the pod comes back during the removal, the
// record is written again.
func (p *Resize) remove(uid types.UID, known func(types.UID) bool) *resizeOp {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known(uid) || p.ops[uid] != nil {
		return nil
	}
	return p.begin(uid, func() error { return p.cfg.Store.Delete(string(uid)) }, func(s *state) { s.recorded = nil })
}
