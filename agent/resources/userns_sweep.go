package resources

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// Sweep implements part.Sweeper. It releases the ranges of pods that are not known. A range that
// cannot be released stays allocated until the next sweep.
func (p *UserNamespaces) Sweep(ctx context.Context, known func(types.UID) bool) error {
	held, err := p.held(ctx)
	if err != nil {
		return err
	}
	for _, uid := range held {
		o, err := p.release(uid, known)
		if err == nil && o != nil {
			err = o.wait(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.cfg.Log.Warn("failed to release user ID range", zap.String("uid", string(uid)), zap.Error(err))
		}
	}
	return nil
}

// held returns the pods that have a range.
func (p *UserNamespaces) held(ctx context.Context) ([]types.UID, error) {
	p.mu.Lock()
	var o *userIDsOp
	var err error
	if p.ranges == nil {
		o, err = p.load()
	}
	p.mu.Unlock()
	if err == nil && o != nil {
		err = o.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := maps.Clone(p.ranges.lost)
	for uid := range p.ranges.of {
		out[uid] = true
	}
	return slices.Collect(maps.Keys(out)), nil
}

// release starts to release a range, or writes its record again if the pod is known and the write
// failed. It returns nil if there is nothing to do or a call is running already. If the pod comes
// back during the release, it waits for the end of the release, and gets another range.
func (p *UserNamespaces) release(uid types.UID, known func(types.UID) bool) (*userIDsOp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, lost := p.ranges.of[uid], p.ranges.lost[uid]
	if r != nil && r.busy != nil || r == nil && !lost {
		return nil, nil
	}
	if known(uid) {
		if r != nil && !r.saved {
			return p.write(r) // a damaged record could not be rewritten before
		}
		return nil, nil
	}
	if r == nil {
		// Only this call is delayed. A pod that comes back meanwhile is no longer lost: it has a
		// new range.
		return p.begin(func() error { return p.cfg.Store.Delete(string(uid)) }, func(err error) {
			if err == nil {
				delete(p.ranges.lost, uid)
			}
		})
	}
	keys := []string{r.key}
	if lost {
		keys = append(keys, string(uid))
	}
	o, err := p.begin(func() error {
		var errs []error
		for _, key := range keys {
			errs = append(errs, p.cfg.Store.Delete(key))
		}
		return errors.Join(errs...)
	}, func(err error) {
		// After an error, the record may or may not exist.
		if r.busy, r.saved = nil, false; err == nil {
			p.ranges.drop(uid)
		}
	})
	r.busy = o
	return o, err
}
