package lifecycle

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/retry"
)

// A failed call is repeated after minBackoff, which doubles up to maxBackoff. callTimeout limits
// each call.
const (
	minBackoff  = time.Second
	maxBackoff  = time.Minute
	callTimeout = 30 * time.Second
)

// calls has the running calls of the API, at most one for each pod name.
type calls struct {
	log  *zap.Logger
	stop context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool // by the pod's full name
}

// newCalls returns calls that can be used before Run: the first pods are synced while Run starts.
func newCalls(log *zap.Logger) *calls {
	c := &calls{log: log, busy: map[string]bool{}}
	c.stop, c.end = context.WithCancel(context.Background())
	return c
}

// close cancels the running calls and waits for them. Afterwards no call begins.
func (c *calls) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.wg.Wait()
}

// until repeats a call until it succeeds or is no longer needed. If a call for that name is
// running already, until does nothing, since the running call reads the current state
// itself.
func (c *calls) until(name string, call func(context.Context) (needed bool, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[name] || c.stop.Err() != nil {
		return
	}
	c.busy[name] = true
	c.wg.Go(func() {
		defer c.done(name)
		c.try(name, call)
	})
}

func (c *calls) done(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, name)
}

func (c *calls) try(name string, call func(context.Context) (bool, error)) {
	wait := retry.Backoff{First: minBackoff, Max: maxBackoff}
	for {
		ctx, cancel := context.WithTimeout(c.stop, callTimeout)
		needed, err := call(ctx)
		cancel()
		if err == nil || !needed || c.stop.Err() != nil {
			return
		}
		again := wait.Next()
		c.log.Warn("failed to reconcile mirror pod", zap.String("pod", name), zap.Duration("retry", again), zap.Error(err))
		if !retry.Sleep(c.stop, again) {
			return
		}
	}
}
