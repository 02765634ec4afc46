package checkpoint

import (
	"context"
	"sync"
)

// maxInFlight is how many calls of the disk are under way at a time: each holds a
// thread for as long as the disk does not answer.
const maxInFlight = 64

// calls are those of a disk that may not answer. Those for one key come one after the
// other, also if nobody waits for them any more; those for others do not wait for
// them. Without that order, a write that was given up could replace the value of a
// later one.
type calls struct {
	slots chan struct{} // has a token for each that is under way

	mu    sync.Mutex
	lanes map[string]*lane
}

// lane are the calls for one key.
type lane struct {
	turn  chan struct{} // has a token while one is under way
	users int           // that are under way, or wait; guarded by calls.mu
}

func newCalls() *calls {
	return &calls{slots: make(chan struct{}, maxInFlight), lanes: map[string]*lane{}}
}

// do returns the error of call, or the cause of ctx's end if that comes first. Then
// call either has not begun, and does not, or goes on and nobody learns its error.
func (c *calls) do(ctx context.Context, key string, call func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l := c.join(key)
	select {
	// The turn comes before the slot: calls that wait for their key hold no slot that
	// others could use.
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
	// Room for the result: the goroutine ends also if nobody waits for it. It gives
	// back slot and turn itself, as the caller may be gone.
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

// join returns the lane of a key and counts one more user of it. Each join has a
// leave, which forgets the lane after the last user.
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
