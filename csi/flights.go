package csi

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodewright/nodewright/volumemgr"
)

// Calls outlive their callers: when a pod is deleted or an operation runs out of
// time, the driver must not get the opposite call before the running one has
// returned.

// flights runs one call at a time for each volume. A call whose callers have gone
// is not cancelled, as the driver may still work on it; the next call for that
// volume starts after it.
type flights struct {
	mu sync.Mutex
	// busy has the running call of each key.
	busy map[string]*flight
	wg   sync.WaitGroup
	// base is never a caller's context: only the end of Run and a call's own deadline
	// end a call.
	base context.Context // of all calls; ends them at the end of Run
	end  bool            // no more of them
}

// enter adds one to the count that wait waits for; leave subtracts it. After the
// end it adds nothing and returns false.
func (f *flights) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.end {
		f.wg.Add(1)
	}
	return !f.end
}

// leave ends a successful enter.
func (f *flights) leave() { f.wg.Done() }

// wait makes enter report false and waits for all that have entered. It does not end
// them: base has to be canceled before.
func (f *flights) wait() {
	f.mu.Lock()
	f.end = true
	f.mu.Unlock()
	f.wg.Wait()
}

// flight is one call. what describes it in errors of callers that wait for it.
type flight struct {
	what string
	done chan struct{}
	err  error // once it is done
}

// do waits until no other call of the key runs, calls fn with a context of its own,
// and returns its result. If ctx ends earlier, do returns ErrTransient if fn was
// not started, and otherwise ErrUncertain. begun reports whether fn was started,
// and so whether fn has to release the caller's resources. Waiting callers are not
// served in order.
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
		// Another caller may be first again, so the loop checks once more.
		case <-other.done:
		case <-ctx.Done():
			return false, transient(fmt.Errorf("%s waits for the end of %s: %w", what, other.what, ctx.Err()))
		}
	}
	go func() {
		defer f.leave()
		own.err = fn(f.base)
		// The key is freed before done is closed, so that waiting callers find it
		// free.
		f.mu.Lock()
		delete(f.busy, key)
		f.mu.Unlock()
		close(own.done)
	}()
	select {
	case <-own.done:
		return true, own.err
	case <-ctx.Done():
		return true, fmt.Errorf("%s goes on: %w: %w", what, ctx.Err(), volumemgr.ErrUncertain)
	}
}
