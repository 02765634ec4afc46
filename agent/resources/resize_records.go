package resources

import (
	"context"
	"encoding/json"
	"errors"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
)

// resizeOp is a running write or removal of a record. err is set before done is closed.
type resizeOp struct {
	done chan struct{}
	err  error
}

// record returns when the pod's record is up to date. For a pod that only waits for a
// resize, it does not wait for the write.
func (p *Resize) record(ctx context.Context, uid types.UID) error {
	for {
		o, mine := p.next(uid)
		if o == nil {
			return nil
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if mine && o.err != nil {
			return o.err
		}
	}
}

// next returns the operation for which the caller has to wait until the pod's record is up to
// date. It returns nil if the record is up to date. mine reports that the operation writes the
// newest allocation.
func (p *Resize) next(uid types.UID) (o *resizeOp, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.pods[uid]
	if s == nil || !s.unrecorded() {
		return nil, false
	}
	o = p.ops[uid]
	if o == nil {
		o, mine = p.write(uid, s.allocated, s.urgent), true
	}
	if !s.urgent {
		return nil, false
	}
	return o, mine
}

// write starts to write a record. If awaited is false, no caller waits for the result, and
// an error is logged. The caller holds p.mu.
func (p *Resize) write(uid types.UID, a *allocation, awaited bool) *resizeOp {
	return p.begin(uid, func() error {
		value, err := json.Marshal(a)
		if err == nil {
			err = p.cfg.Store.Write(string(uid), value)
		}
		if err != nil && !awaited {
			p.cfg.Log.Error("failed to write allocation record", zap.String("uid", string(uid)), zap.Error(err))
		}
		return err
	}, func(s *state) {
		p.kubeletOutdated.Set()
		s.recorded = a
		s.urgent = s.urgent && s.recorded != s.allocated
	})
}

// errEnded is the error of calls after Run has ended.
var errEnded = errors.New("the agent has stopped")

// begin starts a call of the store for a pod's record. There is at most one such call for a pod at
// a time. After a success, succeeded is called with the pod's state, if that still exists, while
// p.mu is held. The caller of begin holds p.mu.
func (p *Resize) begin(uid types.UID, call func() error, succeeded func(*state)) *resizeOp {
	o := &resizeOp{done: make(chan struct{})}
	if p.ended {
		o.err = errEnded
		close(o.done)
		return o
	}
	p.ops[uid] = o
	p.calls.Go(func() {
		o.err = call()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.ops, uid)
		if s := p.pods[uid]; s != nil && o.err == nil {
			succeeded(s)
		}
		close(o.done)
	})
	return o
}
