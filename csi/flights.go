package csi

import (
	"context"
	"fmt"
	"sync"

	"github.com/nodewright/nodewright/volumemgr"
)

// flights runs one call about a volume at a time. A call whose callers have gone is
// not cancelled, as the driver may be at work; the next one about that volume begins
// after its end.
type flights struct {
	mu   sync.Mutex
	busy map[string]*flight
	wg   sync.WaitGroup
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

func (f *flights) leave() { f.wg.Done() }

// wait makes enter report false and waits for all that have entered.
func (f *flights) wait() {
	f.mu.Lock()
	f.end = true
	f.mu.Unlock()
	f.wg.Wait()
}

type flight struct {
	what string
	done chan struct{}
	err  error // once it is done
}

// do calls fn, with a context of its own, when no other call of the key is under
// way, and returns what it returns; or earlier, when ctx ends: an ErrTransient if
// fn was not begun, else an ErrUncertain.
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
		case <-other.done:
		case <-ctx.Done():
			return false, transient(fmt.Errorf("%s waits for the end of %s: %w", what, other.what, ctx.Err()))
		}
	}
	go func() {
		defer f.leave()
		own.err = fn(f.base)
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
