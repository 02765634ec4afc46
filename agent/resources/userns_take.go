package resources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/checkpoint"
)

// errUserIDsEnded is the error of calls after Run has ended.
var errUserIDsEnded = errors.New("the agent has stopped")

// take returns when the pod has a range and its record is stored.
func (p *UserNamespaces) take(ctx context.Context, uid types.UID) error {
	for {
		o, err := p.next(uid)
		if o == nil || err != nil {
			return err
		}
		if err := o.wait(ctx); err != nil {
			return err
		}
	}
}

func (o *userIDsOp) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next returns the call for which the caller has to wait until a pod's range is stored. It
// returns nil if the range is stored. The range belongs to the pod as soon as the write begins:
// no other pod gets the range, and a failed write is repeated.
func (p *UserNamespaces) next(uid types.UID) (*userIDsOp, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ranges == nil {
		return p.load()
	}
	r := p.ranges.of[uid]
	if r == nil {
		var err error
		if r, err = p.ranges.take(uid); err != nil {
			return nil, err
		}
	}
	if r.busy != nil || r.saved {
		return r.busy, nil
	}
	return p.write(r)
}

// write starts to store a range. The caller holds p.mu.
func (p *UserNamespaces) write(r *idRange) (*userIDsOp, error) {
	key, value := r.key, encode(r.first, r.length)
	o, err := p.begin(func() error { return p.cfg.Store.Write(key, value) }, func(err error) {
		r.busy, r.saved = nil, err == nil
	})
	r.busy = o
	return o, err
}

// begin starts a call of the store, and calls ended with its error, while p.mu is held. The caller
// of begin holds p.mu too.
func (p *UserNamespaces) begin(call func() error, ended func(error)) (*userIDsOp, error) {
	if p.ended {
		return nil, errUserIDsEnded
	}
	o := &userIDsOp{done: make(chan struct{})}
	p.calls.Go(func() {
		o.err = call()
		p.mu.Lock()
		defer p.mu.Unlock()
		ended(o.err)
		close(o.done)
	})
	return o, nil
}

// load starts to read the records, or returns the running call. The caller holds p.mu.
func (p *UserNamespaces) load() (*userIDsOp, error) {
	if p.loading != nil {
		return p.loading, nil
	}
	var found *ranges
	o, err := p.begin(func() (err error) {
		found, err = p.read()
		return err
	}, func(err error) {
		p.loading = nil
		if err == nil {
			p.ranges = found
		}
	})
	p.loading = o
	return o, err
}

// read returns the stored ranges.
func (p *UserNamespaces) read() (*ranges, error) {
	keys, err := p.cfg.Store.Keys()
	if err != nil {
		return nil, fmt.Errorf("list ranges of user IDs: %w", err)
	}
	out := newRanges(p.space)
	for _, key := range keys {
		uid, named, blocks := parseKey(key)
		value, err := p.cfg.Store.Read(key)
		if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkpoint.ErrCorrupt) {
			continue
		}
		if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) {
			return nil, fmt.Errorf("read range of user IDs: %w", err)
		}
		if err == nil {
			var first, length uint32
			if first, length, err = decodeUserIDs(value); err == nil && (named == 0 || named == first && blocks == length) {
				out.add(uid, first, length, key, true)
				continue
			}
			if err == nil {
				err = fmt.Errorf("record has a range of %d IDs from %d; its file name says %d from %d", length, first, blocks, named)
			}
		}
		p.damaged(out, key, value, err)
	}
	return out, nil
}

// damaged handles a record that cannot be read. The pod may be running with its
// range: if the key contains the range, the record is written again; if not, the pod
// is added to out.lost, and no range that it might have is given to another pod.
func (p *UserNamespaces) damaged(out *ranges, key string, value []byte, cause error) {
	uid, named, length := parseKey(key)
	log := p.cfg.Log.With(zap.String("uid", string(uid)))
	if named == 0 {
		out.lost[uid] = true
		if bytes.Equal(value, lostValue) {
			return // logged and renamed already
		}
	}
	log.Error("found invalid record of a pod's user ID range", zap.Uint32("first", named), zap.Error(cause))
	if value != nil {
		if err := part.SetAside(p.cfg.Store, key, cause); err != nil {
			log.Warn("failed to rename the invalid record of a user ID range", zap.Error(err))
		}
	}
	if named != 0 {
		out.add(uid, named, length, key, p.cfg.Store.Write(key, encode(named, length)) == nil)
		return
	}
	if err := p.cfg.Store.Write(key, lostValue); err != nil {
		log.Warn("failed to record that a pod's user ID range is unknown", zap.Error(err))
	}
}
