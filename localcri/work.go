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
	"github.com/nodewright/nodewright/internal/rpcerror"
)

// op is work that any number of callers may wait for. It continues without them.
type op struct {
	done chan struct{}
	err  error // valid once done is closed
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

// wait returns the result of the work. If ctx ends before the work, it returns the cause of ctx.
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

// claim is the creation of a sandbox or container. Its callers may give up before it is
// complete. An object that no caller has received is kept for unclaimedTime, for a later call, and
// then removed.
type claim struct {
	*op

	mu        sync.Mutex
	waiting   int
	delivered bool
	undoing   bool
	timer     *time.Timer
	undo      func()
}

// newClaim returns a claim with one waiting caller. undo is called at most once, on its own
// goroutine.
func newClaim(undo func()) *claim { return &claim{op: newOp(), waiting: 1, undo: undo} }

// joinResult is the result of joining a claim.
type joinResult uint8

const (
	joinWait      joinResult = iota // wait for it
	joinDelivered                   // a caller has it
	joinUndoing                     // it is being removed
)

// join adds a waiting caller, if the object is being created or no caller has received it. If same
// is false, the caller requests another configuration; join then removes a complete object that no
// caller has received or waits for. The result says what the caller has to do.
func (c *claim) join(same bool) joinResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.undoing:
		return joinUndoing
	case c.delivered, !same && (c.waiting > 0 || !c.finished()):
		return joinDelivered
	case !same:
		c.undoLocked()
		return joinUndoing
	}
	c.waiting++
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	return joinWait
}

func (c *claim) undoLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.undoing = true
	go c.undo()
}

// complete records that the creation has ended with err.
func (c *claim) complete(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(err)
	c.startTimerLocked()
}

// startTimerLocked starts the timer that removes an object which no caller waits for.
func (c *claim) startTimerLocked() {
	if c.waiting > 0 || c.delivered || c.undoing || !c.finished() || c.err != nil {
		return
	}
	c.timer = time.AfterFunc(unclaimedTime, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.waiting == 0 && !c.delivered && !c.undoing {
			c.undoLocked()
		}
	})
}

// take waits for the result. Unless ctx has ended, the object then counts as delivered to a
// caller.
func (c *claim) take(ctx context.Context) error {
	err := c.wait(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
	if ctx.Err() != nil && (err == nil || !c.finished()) {
		c.startTimerLocked()
		return coded(context.Cause(ctx))
	}
	c.delivered = c.delivered || err == nil
	return err
}

// isDelivered reports whether a caller has the object.
func (c *claim) isDelivered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delivered
}

// drop stops the timer of a claim whose object is removed in another way. c may be nil.
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

// saver writes one record. A writer first takes the token and then reads the content, so that
// the newest content is written last.
type saver struct {
	token chan struct{}
	// Guarded by the token.
	removed bool   // the record is removed: nothing is written any more
	written uint64 // hash of the last write; 0 if unknown
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
	if s.removed { // a delayed write must not create the record again
		return nil
	}
	b := value()
	if b == nil {
		return nil // it is removed
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

// contextForWrite returns a context for a write that must still be done when ctx ends because the
// runtime ends. The context has its own timeout.
func contextForWrite(ctx context.Context) (context.Context, context.CancelFunc) {
	const timeout = 5 * time.Second
	if ctx.Err() == nil {
		return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// coded gives an error a gRPC code, if it has none yet.
func coded(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return rpcerror.Of(s)
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
	return rpcerror.New(code, shown(err.Error()))
}

// longest limits the bytes of a foreign text in an error or a status.
const longest = 4 << 10

func shown(s string) string {
	if len(s) > longest {
		return s[:longest] + "..."
	}
	return s
}

func errorf(code codes.Code, format string, args ...any) error {
	return rpcerror.Errorf(code, format, args...)
}

func notFound(kind, id string) error {
	return errorf(codes.NotFound, "%s %.128q does not exist", kind, id)
}

var errStopped = rpcerror.New(codes.Unavailable, "the runtime does not run")
