package kubeapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// followSpread is the time over which callers that waited for a Gate continue.
const followSpread = 500 * time.Millisecond

// Gate stops followers while the server is unreachable, so that only one of them
// tries. The zero value is open; a nil Gate is always open. Its methods may be
// called from any goroutine.
type Gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open; closed to open it
}

// Close makes callers of Wait wait.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// Open lets the callers of Wait continue, spread over half a second.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// Wait waits until the gate is open. It returns false if ctx ends first.
func (g *Gate) Wait(ctx context.Context) bool {
	if g == nil {
		return !over(ctx)
	}
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return !over(ctx)
	}
	select {
	case <-closed:
	case <-ctx.Done():
		return false
	}
	t := time.NewTimer(rand.N(followSpread))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return !over(ctx)
}
