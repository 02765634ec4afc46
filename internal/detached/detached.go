// Package detached makes calls that may never return, as those into a file
// system whose server is dead: the caller goes on when its context ends, and
// however often it tries again, each such call holds one goroutine and thread.
package detached

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrBusy means that as many calls as are allowed have not returned.
var ErrBusy = errors.New("too many calls have not returned")

// ErrPanicked means that the function panicked.
var ErrPanicked = errors.New("call panicked")

// Group is a set of calls. Its zero value is ready; it must not be copied.
type Group[T any] struct {
	// Limit is how many calls may be in flight at a time; 64.
	Limit int

	mu    sync.Mutex
	calls map[string]*call[T]
}

const defaultLimit = 64

type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Do calls f and returns what it returns, or the cause of ctx's end if that
// comes first: f goes on then, and nobody learns its result but those who wait
// for it. While a call with the same key has not returned, f is not called: its
// result is waited for instead, and shared. With Limit calls of other keys in
// flight, Do returns an [ErrBusy] at once.
func (g *Group[T]) Do(ctx context.Context, key string, f func() (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	c, err := g.join(key, f)
	if err != nil {
		return zero, err
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

func (g *Group[T]) join(key string, f func() (T, error)) (*call[T], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		return c, nil
	}
	limit := g.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if len(g.calls) >= limit {
		return nil, fmt.Errorf("%w: want fewer than %d", ErrBusy, limit)
	}
	if g.calls == nil {
		g.calls = map[string]*call[T]{}
	}
	c := &call[T]{done: make(chan struct{})}
	g.calls[key] = c
	go g.run(key, c, f)
	return c, nil
}

func (g *Group[T]) run(key string, c *call[T], f func() (T, error)) {
	defer func() {
		if p := recover(); p != nil {
			c.err = fmt.Errorf("%w: %v", ErrPanicked, p)
		}
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = f()
}

// InFlight returns how many calls have not returned.
func (g *Group[T]) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}
