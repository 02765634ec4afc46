package bridge

import (
	"context"
	"errors"
	"slices"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/network"
)

const maxOperations = 256 // in flight

// remember keeps the ports that our sockets have: what comes from them was not
// done by others.
func (p *Plugin) remember(port uint32) {
	const kept = 16
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = append(p.own, port)
	if len(p.own) > kept {
		p.own = p.own[len(p.own)-kept:]
	}
}

func (p *Plugin) isOwn(port uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.own, port)
}

// enter waits for the gate.
func (p *Plugin) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.gate <- struct{}{}:
		return func() { <-p.gate }, nil
	case <-ctx.Done():
		return nil, late(ctx, "wait for the other pods' changes")
	}
}

func late(ctx context.Context, doing string) error {
	return network.Errorf(network.DeadlineExceeded, "bridge network: %s: %w", doing, context.Cause(ctx))
}

// one waits for the end of what is done for the same ID, which may be a call that
// its caller gave up.
func (p *Plugin) one(ctx context.Context, id string) (done func(), err error) {
	for {
		p.mu.Lock()
		other := p.busy[id]
		if other == nil {
			mine := make(chan struct{})
			p.busy[id] = mine
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.busy, id)
				p.mu.Unlock()
				close(mine)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, late(ctx, "wait for an earlier call for "+id)
		}
	}
}

// do makes a call of the kernel that may take long: it goes on when ctx ends, and
// what comes for the same ID waits for it.
func (p *Plugin) do(ctx context.Context, kind, id string, f func(context.Context) (network.Result, error)) (network.Result, error) {
	r, err := p.ops.Do(ctx, kind+" "+id, func() (network.Result, error) {
		if err := p.begin(); err != nil {
			return network.Result{}, err
		}
		defer p.end()
		done, err := p.one(ctx, id)
		if err != nil {
			return network.Result{}, err
		}
		defer done()
		return f(ctx)
	})
	var coded *network.Error
	switch {
	case err == nil || errors.As(err, &coded):
	case errors.Is(err, detached.ErrBusy):
		err = network.Errorf(network.Unavailable, "bridge network: %s: %w", kind, err)
	case ctx.Err() != nil:
		err = network.Errorf(network.DeadlineExceeded, "bridge network: %s: %w", kind, err)
	default:
		err = network.Errorf(network.Unknown, "bridge network: %s: %w", kind, err)
	}
	return r, err
}
