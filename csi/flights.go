package csi

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodewright/nodewright/volumemgr"
)

// Calls outlive their callers. A pod that is deleted, or an operation that runs out
// of time, must not make a driver hear the opposite of what it is still doing.

// flights runs one call about a volume at a time. A call whose callers have gone is
// not cancelled, as the driver may be at work; the next one about that volume begins
// after its end.
type flights struct {
	mu sync.Mutex
	// busy has the call under way of each key.
	busy map[string]*flight
	wg   sync.WaitGroup
	// base is never a caller's context: only the end of Run and a call's own deadline
	// end a call.
	base context.Context // of all calls; ends them at the end of Run
	end  bool            // no more of them
}

// enter adds one to what wait waits for; leave takes it off. It reports false after
// the end, and adds nothing then.
func (f *flights) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.end {
		f.wg.Add(1)
	}
	return !f.end
}

// leave takes off what an enter that reported true has added.
func (f *flights) leave() { f.wg.Done() }

// wait makes enter report false and waits for all that have entered. It does not end
// them: base has to be canceled before.
func (f *flights) wait() {
	f.mu.Lock()
	f.end = true
	f.mu.Unlock()
	f.wg.Wait()
}

// flight is one call. what names it, for those who have to wait for it.
type flight struct {
	what string
	done chan struct{}
	err  error // once it is done
}

// do calls fn, with a context of its own, when no other call of the key is under way,
// and returns what it returns; or earlier, when ctx ends: an ErrTransient if fn was
// not begun, else an ErrUncertain. begun reports whether fn was called, and so
// whether it has the caller's resources to release. Those who wait are not served in
// order.
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
		// Somebody else may be first again, so the loop asks once more.
		case <-other.done:
		case <-ctx.Done():
			return false, transient(fmt.Errorf("%s waits for the end of %s: %w", what, other.what, ctx.Err()))
		}
	}
	go func() {
		defer f.leave()
		own.err = fn(f.base)
		// The key is free before done is closed: whoever waits finds it so.
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
