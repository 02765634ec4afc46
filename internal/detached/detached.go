// Package detached makes calls that may never return, such as calls into a file system
// whose server is dead. The caller continues when its context ends. While a call hangs,
// further calls with the same key wait for the hanging call: each key occupies at most
// one goroutine and thread.
package detached

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrBusy means that Limit other calls have not returned.
var ErrBusy = errors.New("too many calls have not returned")

// ErrPanicked means that the called function panicked.
var ErrPanicked = errors.New("call panicked")

// Group is a set of calls. Its zero value is ready; it must not be copied.
type Group[T any] struct {
	// Limit is the maximum number of calls in flight. The default is 64.
	Limit int
	// Wait makes a call above Limit wait for a free place until its context ends. If Wait
	// is false, such a call fails with ErrBusy at once. Set it for many simultaneous calls
	// of which few hang.
	Wait bool

	mu    sync.Mutex
	calls map[string]*call[T] // guarded by mu
	freed chan struct{}       // guarded by mu: closed when a call returns; nil if there are no waiters
}

const defaultLimit = 64

type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Do calls f and returns its result. If ctx ends first, Do returns context.Cause of
// ctx, and f continues. While an earlier call with the same key has not returned, Do
// does not call f: it waits for that call and returns its result. While Limit calls of
// other keys are in flight, Do returns an [ErrBusy] at once. If Wait is set, it waits
// for a free place instead, and returns an [ErrBusy] when ctx ends.
func (g *Group[T]) Do(ctx context.Context, key string, f func() (T, error)) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	c, freed := g.join(key, f)
	for c == nil {
		busy := fmt.Errorf("%w: want fewer than %d", ErrBusy, g.limit())
		if freed == nil {
			return zero, busy
		}
		select {
		case <-freed:
			c, freed = g.join(key, f)
		case <-ctx.Done():
			return zero, fmt.Errorf("%w: %w", busy, context.Cause(ctx))
		}
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

func (g *Group[T]) limit() int {
	if g.Limit == 0 {
		return defaultLimit
	}
	return g.Limit
}

// join returns the call of a key, and starts the call if none is in flight. If there is no free
// place, c is nil, and freed is closed when a place may be free. If g.Wait is false, freed is nil.
func (g *Group[T]) join(key string, f func() (T, error)) (c *call[T], freed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		return c, nil
	}
	if len(g.calls) >= g.limit() {
		if g.Wait && g.freed == nil {
			g.freed = make(chan struct{})
		}
		return nil, g.freed
	}
	if g.calls == nil {
		g.calls = map[string]*call[T]{}
	}
	c = &call[T]{done: make(chan struct{})}
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
		if g.freed != nil {
			close(g.freed)
			g.freed = nil
		}
		g.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = f()
}

// InFlight returns the number of calls that have not returned.
func (g *Group[T]) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}
