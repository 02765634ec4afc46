package kubeapi

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// followSpread is over how long those who waited for a Gate begin.
const followSpread = 500 * time.Millisecond

// Gate holds followers back while the server is not to be reached, so that one
// of them alone tries. The zero value is open; a nil one always is. Its methods
// may be called from any goroutine.
type Gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open; closed to open it
}

// Close has others wait.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// Open has them begin, spread over half a second.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// Wait waits until the gate is open, and returns false if ctx ends before.
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
