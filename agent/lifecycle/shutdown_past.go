package lifecycle

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/shutdown"
)

// readWithin limits the wait for the store before the machine is watched: a disk that hangs must
// not prevent an orderly termination of pods.
const readWithin = 2 * time.Second

// errLate means that the store did not answer in time.
var errLate = errors.New("the store did not answer in time")

// past is the store that package node/shutdown gets. It reads the stored state once. Once the
// machine is watched, Restore of package node/shutdown must have no effect, so a read that
// returns later reports no state.
type past struct {
	store part.Store
	done  chan struct{} // closed when the state is known, or the wait was given up

	mu    sync.Mutex
	given bool // the state was passed on
	over  bool // done is closed
	err   error
}

var _ shutdown.Store = (*past)(nil)

func newPast(store part.Store) *past { return &past{store: store, done: make(chan struct{})} }

// Write implements block.Store.
func (p *past) Write(key string, value []byte) error { return p.store.Write(key, value) }

// Read implements block.Store.
func (p *past) Read(key string) ([]byte, error) {
	raw, err := p.store.Read(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil, fs.ErrNotExist
	}
	p.given = true
	return raw, err
}

// restore calls read, which is the Restore of package node/shutdown.
func (p *past) restore(read func() error) { p.end(read(), true) }

// giveUp ends the wait for restore, unless the state was passed on.
func (p *past) giveUp() { p.end(errLate, false) }

func (p *past) end(err error, restored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.given && !restored {
		return
	}
	p.over, p.err = true, err
	close(p.done)
}

// wait returns when restore has returned or was given up.
func (p *past) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
