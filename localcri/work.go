//go:build linux

package localcri

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/checkpoint"
)

// op is work that any number of callers wait for. It goes on without them.
type op struct {
	done chan struct{}
	err  error // when done is closed
}

func newOp() *op { return &op{done: make(chan struct{})} }

func (o *op) finish(err error) {
	o.err = err
	close(o.done)
}

func (o *op) finished() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// wait returns what the work came to, or the end of ctx.
func (o *op) wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	default:
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return coded(context.Cause(ctx))
	}
}

// claim is the making of something for callers that may go away: what nobody
// took is kept for a while for a caller that comes again, and then undone.
type claim struct {
	*op

	mu        sync.Mutex
	waiting   int
	delivered bool
	undoing   bool
	timer     *time.Timer
	undo      func()
}

// newClaim has one caller waiting. undo is called at most once, in a goroutine of
// its own.
func newClaim(undo func()) *claim { return &claim{op: newOp(), waiting: 1, undo: undo} }

// fate is what a later caller finds of a claim.
type fate uint8

const (
	fateJoined    fate = iota // wait for it
	fateDelivered             // somebody has it
	fateUndoing               // it is going
)

// join has one more caller wait, if there is something to wait for. One that asks
// for something else has what nobody took undone.
func (c *claim) join(same bool) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.undoing:
		return fateUndoing
	case c.delivered, !same && (c.waiting > 0 || !c.finished()):
		return fateDelivered
	case !same:
		c.undoLocked()
		return fateUndoing
	}
	c.waiting++
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	return fateJoined
}

func (c *claim) undoLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.undoing = true
	go c.undo()
}

// complete ends the making.
func (c *claim) complete(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(err)
	c.parkLocked()
}

// parkLocked keeps what nobody waits for.
func (c *claim) parkLocked() {
	if c.waiting > 0 || c.delivered || c.undoing || !c.finished() || c.err != nil {
		return
	}
	c.timer = time.AfterFunc(parkTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting == 0 && !c.delivered && !c.undoing {
			c.undoLocked()
		}
	})
}

// take waits for the outcome. It is delivered unless ctx has ended.
func (c *claim) take(ctx context.Context) error {
	err := c.wait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if ctx.Err() != nil && (err == nil || !c.finished()) {
		c.parkLocked()
		return coded(context.Cause(ctx))
	}
	c.delivered = c.delivered || err == nil
	return err
}

// isDelivered reports whether a caller has it.
func (c *claim) isDelivered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// drop stops the clock of what is removed otherwise. c may be nil.
func (c *claim) drop() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undoing = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// saver writes one record, the newest one last: whoever writes holds the token
// and takes the record as it is then.
type saver struct {
	token chan struct{}
	// Who has the token may look at these.
	removed bool   // for good
	written uint64 // hash of the last one; 0 if that is not known
}

var recordSeed = maphash.MakeSeed()

func newSaver() *saver { return &saver{token: make(chan struct{}, 1)} }

func (s *saver) save(ctx context.Context, store *checkpoint.Store, key string, value func() []byte) error {
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.token }()
	if s.removed { // a write that was put off must not bring it back
		return nil
	}
	b := value()
	if b == nil {
		return nil // it is gone
	}
	hash := maphash.Bytes(recordSeed, b)
	if s.written == hash {
		return nil
	}
	s.written = 0
	if err := store.WriteContext(ctx, key, b); err != nil {
		return err
	}
	s.written = hash
	return nil
}

func (s *saver) remove(ctx context.Context, store *checkpoint.Store, key string) error {
	select {
	case s.token <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.token }()
	s.removed = true
	return store.DeleteContext(ctx, key)
}

// lastly is for what is still to be written when the runtime ends.
func lastly(ctx context.Context) (context.Context, context.CancelFunc) {
	const patience = 5 * time.Second
	if ctx.Err() == nil {
		return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// coded gives an error the code of the CRI, if it has none yet.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case isFull(err):
		code = codes.ResourceExhausted
	}
	return status.Error(code, shown(err.Error()))
}

// longest is how much of a text from elsewhere an error or a status shows, in
// bytes.
const longest = 4 << 10

func shown(s string) string {
	if len(s) > longest {
		return s[:longest] + "..."
	}
	return s
}

func errorf(code codes.Code, format string, args ...any) error {
	return status.Errorf(code, format, args...)
}

func notFound(kind, id string) error {
	return errorf(codes.NotFound, "%s %.128q does not exist", kind, id)
}

var errStopped = status.Error(codes.Unavailable, "the runtime does not run")
