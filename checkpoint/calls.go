package checkpoint

import (
	"context"
	"sync"
)

// maxInFlight limits the concurrent disk calls. Each occupies a thread until the disk answers.
const maxInFlight = 64

// calls runs disk calls that may never return. Calls for one key run one after the other, even if
// their callers have given up: otherwise an abandoned write could replace the value of a later
// one. Calls for different keys do not wait for each other.
type calls struct {
	slots chan struct{} // holds one element for each running call

	mu    sync.Mutex
	lanes map[string]*lane
}

// lane is the queue of the calls for one key.
type lane struct {
	turn  chan struct{} // holds one element while a call of the key runs
	users int           // number of running and waiting calls; guarded by calls.mu
}

func newCalls() *calls {
	return &calls{slots: make(chan struct{}, maxInFlight), lanes: map[string]*lane{}}
}

// do returns the error of call. If ctx ends first, do returns the cause of ctx's end; call is
// then either never started, or continues and its error is dropped.
func (c *calls) do(ctx context.Context, key string, call func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l := c.join(key)
	select {
	// The turn is taken before the slot, so that calls that wait for their key hold no slot.
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		c.leave(key, l)
		return context.Cause(ctx)
	}
	end := func() {
		<-l.turn
		c.leave(key, l)
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		end()
		return context.Cause(ctx)
	}
	// Buffered, so that the goroutine ends even if the caller has returned. It releases slot and
	// turn itself.
	done := make(chan error, 1)
	go func() {
		defer func() {
			<-c.slots
			end()
		}()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join returns the lane of a key and adds one user. Each join needs a leave; the leave of the
// last user removes the lane.
func (c *calls) join(key string) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[key]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		c.lanes[key] = l
	}
	l.users++
	return l
}

func (c *calls) leave(key string, l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(c.lanes, key)
	}
}
