package bridge

import (
	"context"
	"errors"
	"slices"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/network"
)

// maxOperations limits calls that have not returned, abandoned ones included.
const maxOperations = 256 // in flight

// remember stores the netlink port of one of this plugin's sockets: events with this port are the
// plugin's own changes. It is called before a socket changes anything.
func (p *Plugin) remember(port uint32) {
	// After an error a new socket is opened, but events of the old one may still arrive.
	const kept = 16
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own = append(p.own, port)
	if len(p.own) > kept {
		p.own = p.own[len(p.own)-kept:]
	}
}

// isOwn reports whether a netlink port is one of this plugin's sockets.
func (p *Plugin) isOwn(port uint32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.own, port)
}

// enter waits for the gate. The caller must call leave afterwards. The gate is a channel and not
// a mutex, so that the wait can end with ctx: another call that is in the gate may wait long for
// the kernel.
func (p *Plugin) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.gate <- struct{}{}:
		return func() { <-p.gate }, nil
	case <-ctx.Done():
		return nil, late(ctx, "wait for the other pods' changes")
	}
}

// late returns a DeadlineExceeded error that names the operation.
func late(ctx context.Context, doing string) error {
	return network.Errorf(network.DeadlineExceeded, "bridge network: %s: %w", doing, context.Cause(ctx))
}

// one waits until no other call for the same ID is running, including abandoned calls. The caller
// must call done at the end. Without the wait, a TearDown during an abandoned SetUp would miss
// the parts that SetUp creates afterwards.
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
				// Removed from the map first: a waiting call must not find it there.
				p.mu.Unlock()
				close(mine)
			}, nil
		}
		// Several calls may wait for the same end; the loop lets one of them start.
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, late(ctx, "wait for an earlier call for "+id)
		}
	}
}

// do runs f, whose system calls may take long. If ctx ends first, do returns and f continues;
// later calls for the same ID wait for f. kind and id are the key of a call: a repeated call gets
// the result of the running one. Errors without a code get one.
func (p *Plugin) do(ctx context.Context, kind, id string, f func(context.Context) (network.Result, error)) (network.Result, error) {
	r, err := p.ops.Do(ctx, kind+" "+id, func() (network.Result, error) {
		// Counted within the call: the sockets stay open until it returns, even if its caller has
		// gone.
		if err := p.begin(); err != nil {
			return network.Result{}, err
		}
		defer p.end()
		// Calls of other kinds for the ID wait here.
		done, err := p.one(ctx, id)
		if err != nil {
			return network.Result{}, err
		}
		defer done()
		return f(ctx)
	})
	var coded *network.Error
	// The order matters: an error that has a code already keeps it.
	switch {
	case err == nil || errors.As(err, &coded):
	// Too many calls hang in the kernel; a later attempt may succeed.
	case errors.Is(err, detached.ErrBusy):
		err = network.Errorf(network.Unavailable, "bridge network: %s: %w", kind, err)
	case ctx.Err() != nil:
		err = network.Errorf(network.DeadlineExceeded, "bridge network: %s: %w", kind, err)
	default:
		err = network.Errorf(network.Unknown, "bridge network: %s: %w", kind, err)
	}
	return r, err
}
