package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// Calls limits the time that callers wait for a call that may hang: a write to memory.max
// reclaims memory first, and D-Bus has no deadline of its own. A hung call cannot be
// ended. Calls abandons its goroutine and counts it.
type Calls struct {
	timeout time.Duration
	changed func(by int)

	// mu guards stuck. A call's goroutine holds it while it hands over its result.
	mu sync.Mutex
	// stuck has the start times of the abandoned calls that have not returned, by target: a file
	// or a systemd unit.
	stuck map[string]time.Time
}

// NewCalls returns Calls with this timeout for each call. Calls calls changed with 1 when it
// abandons a call, and with -1 when an abandoned call returns. changed must not call methods of the
// Calls.
func NewCalls(timeout time.Duration, changed func(by int)) *Calls {
	return &Calls{timeout: timeout, changed: changed, stuck: map[string]time.Time{}}
}

// mark records that a call for target is abandoned. If another call for the same target is marked
// already, because both began before one of them was abandoned, mark does nothing. The caller holds
// c.mu.
func (c *Calls) mark(target string, start time.Time) {
	if _, other := c.stuck[target]; !other {
		c.stuck[target] = start
		c.changed(1)
	}
}

// unmark removes the mark of a call that has returned. start identifies the call: the mark of another
// call for the same target stays. The caller holds c.mu.
func (c *Calls) unmark(target string, start time.Time) {
	if c.stuck[target].Equal(start) {
		delete(c.stuck, target)
		c.changed(-1)
	}
}

// Do calls f and returns its error. After the timeout or at the end of ctx, Do abandons
// the call and returns ErrNoAnswer. While an abandoned call for the same target has not
// returned, Do returns ErrNoAnswer at once, so that hung calls do not accumulate. An
// abandoned call may still take effect.
func (c *Calls) Do(ctx context.Context, what, target string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	c.mu.Lock()
	since, stuck := c.stuck[target]
	c.mu.Unlock()
	if stuck {
		return refused(what, target, since)
	}
	start := time.Now()
	// With the buffer, the goroutine of an abandoned call can end.
	done := make(chan error, 1)
	go func() {
		err := f()
		// Clearing the mark and handing over the result are one step under mu.
		// Otherwise a mark could be set after the call had returned, and its target
		// would be refused forever.
		c.mu.Lock()
		c.unmark(target, start)
		done <- err
		c.mu.Unlock()
	}()
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	var why error
	select {
	case err := <-done:
		return wrap(what, target, err)
	case <-timer.C:
		why = fmt.Errorf("%w in %v", ErrNoAnswer, c.timeout)
	case <-ctx.Done():
		why = fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case err := <-done: // f returned before the lock was taken
		return wrap(what, target, err)
	default:
	}
	c.mark(target, start)
	return fmt.Errorf("%s %s: %w", what, target, why)
}

// wrap adds the action and the target to an error, unless the error wraps a PathError, which has
// both.
func wrap(what, target string, err error) error {
	var named *fs.PathError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s %s: %w", what, target, err)
}

// Batch makes calls one after the other on one goroutine. Each call has the whole timeout,
// and is marked as stuck if it does not return in time. In contrast to Calls.Do, the calls
// share one goroutine and one timer, since a pod's cgroup on v1 needs twenty calls.
type Batch struct {
	*Calls

	// Guarded by Calls.mu: the current call and its start, and whether the batch was abandoned. Between
	// calls, target is "". An abandoned batch makes no further call.
	what, target string
	start        time.Time
	gone         bool
}

// Together runs f, which makes its file system calls with Batch.Do. Together returns when f returns,
// when a call times out, or when ctx ends. In the last two cases the error is ErrNoAnswer, and f may
// still run, so the caller must not read variables that f writes.
func (c *Calls) Together(ctx context.Context, f func(*Batch) error) error {
	b := &Batch{Calls: c}
	done := make(chan error, 1)
	go func() { done <- f(b) }()
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		case <-ctx.Done():
		}
		if left, err := b.abandon(ctx); left > 0 {
			timer.Reset(left)
		} else {
			return err
		}
	}
}

// abandon marks the batch and its current call as abandoned, and returns the error for the caller of
// Together. If ctx has not ended and the current call has time left, or there is none, abandon does
// nothing and returns the time that is left.
func (b *Batch) abandon(ctx context.Context) (left time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left = b.timeout
	if b.target != "" {
		left -= time.Since(b.start)
	}
	if left > 0 && ctx.Err() == nil {
		return left, nil
	}
	b.gone = true
	why := fmt.Errorf("%w in %v", ErrNoAnswer, b.timeout)
	if ctx.Err() != nil {
		why = fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
	}
	if b.target == "" {
		return 0, why
	}
	b.mark(b.target, b.start)
	return 0, fmt.Errorf("%s %s: %w", b.what, b.target, why)
}

// Do makes one call of the batch. It returns the same errors as Calls.Do, but waits until f returns.
func (b *Batch) Do(ctx context.Context, what, target string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	if err := b.begin(what, target); err != nil {
		return err
	}
	err := f()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		b.unmark(target, b.start)
		return fmt.Errorf("%s %s: %w", what, target, ErrNoAnswer)
	}
	b.target = ""
	return wrap(what, target, err)
}

// begin records the start of a call. It returns ErrNoAnswer if the batch was abandoned, or if an
// abandoned call for the same target has not returned.
func (b *Batch) begin(what, target string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return fmt.Errorf("%s %s: %w", what, target, ErrNoAnswer)
	}
	if since, stuck := b.stuck[target]; stuck {
		return refused(what, target, since)
	}
	b.what, b.target, b.start = what, target, time.Now()
	return nil
}

// refused returns the error of a call whose target is stuck.
func refused(what, target string, since time.Time) error {
	return fmt.Errorf("%s %s: %w to a call of %v ago", what, target, ErrNoAnswer, time.Since(since).Round(time.Second))
}
