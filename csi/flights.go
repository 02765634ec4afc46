package csi

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodewright/nodewright/volumemgr"
)

// Calls outlive their callers. If a pod is deleted or an operation exceeds its deadline, the
// driver must not get the opposite call before the running one has returned.

// flights runs one call at a time for each volume. A call is not cancelled when its callers give
// up, since the driver may still be working on it; the next call for the volume starts after it.
type flights struct {
	mu sync.Mutex
	// busy has the running call of each key.
	busy map[string]*flight
	wg   sync.WaitGroup
	// base is the parent of the contexts of all calls. It is not a caller's context: only the end of
	// Run and a call's own deadline end a call.
	base context.Context // Run cancels it when it ends
	end  bool            // wait was called: no call may begin
}

// enter adds a user that wait waits for. The user calls leave at its end. After wait was called,
// enter adds nothing and returns false.
func (f *flights) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.end {
		f.wg.Add(1)
	}
	return !f.end
}

// leave ends the use that a successful enter began.
func (f *flights) leave() { f.wg.Done() }

// wait makes enter return false, and waits until every user has called leave. It does not end the
// calls; cancel base first.
func (f *flights) wait() {
	f.mu.Lock()
	f.end = true
	f.mu.Unlock()
	f.wg.Wait()
}

// flight is one call. what describes the call in errors for callers that wait for it.
type flight struct {
	what string
	done chan struct{}
	err  error // set before done is closed
}

// do waits until no other call with the key is running, calls fn with a context of its own, and
// returns its result.
//
// If ctx ends earlier, do returns ErrTransient if fn was not started, and otherwise ErrUncertain.
// begun reports whether fn was started. If it was, fn releases the caller's resources, and not
// the caller. Waiting callers are not served in order.
func (f *flights) do(ctx context.Context, key, what string, fn func(ctx context.Context) error) (begun bool, err error) {
	own := &flight{what: what, done: make(chan struct{})}
	for {
		if err := ctx.Err(); err != nil {
			return false, transient(fmt.Errorf("%s: %w", what, err))
		}
		f.mu.Lock()
		if f.end || f.base.Err() != nil {
			f.mu.Unlock()
			return false, transient(fmt.Errorf("%s: %w", what, errEnded))
		}
		other := f.busy[key]
		if other == nil {
			f.busy[key] = own
			f.wg.Add(1)
			f.mu.Unlock()
			break
		}
		f.mu.Unlock()
		select {
		// Another caller may have been faster, so check again.
		case <-other.done:
		case <-ctx.Done():
			return false, transient(fmt.Errorf("%s: waited for %s: %w", what, other.what, ctx.Err()))
		}
	}
	go func() {
		defer f.leave()
		own.err = fn(f.base)
		// The key is released before done is closed, so that waiting callers find it free.
		f.mu.Lock()
		delete(f.busy, key)
		f.mu.Unlock()
		close(own.done)
	}()
	select {
	case <-own.done:
		return true, own.err
	case <-ctx.Done():
		return true, fmt.Errorf("%s has not finished: %w: %w", what, ctx.Err(), volumemgr.ErrUncertain)
	}
}
