package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// FS is the part of a file system that this package uses. Paths are absolute.
// Errors are those of the system calls: errors.Is distinguishes fs.ErrNotExist and
// syscall numbers. Methods are called from any goroutine, and may hang: a
// Manager waits no longer than Config.CallTimeout.
type FS interface {
	Read(path string) ([]byte, error)
	// Write writes value to an existing file in one call: the kernel takes each
	// write as one value. The file is not created or truncated.
	Write(path, value string) error
	Mkdir(path string) error
	// Rmdir removes one directory; the files of a cgroup do not keep it from being
	// removed.
	Rmdir(path string) error
	// Dirs returns the names of the directories in a directory.
	Dirs(path string) ([]string, error)
}

// calls limits the time of calls that may hang: a write to memory.max reclaims
// memory first, and D-Bus has no deadline of its own. A hung call cannot be ended;
// its goroutine is abandoned and counted.
type calls struct {
	timeout time.Duration
	met     *metrics

	// mu guards stuck. A call's goroutine holds it while it hands over its result.
	mu sync.Mutex
	// stuck has the start times of calls that were given up and have not returned, by file or
	// unit.
	stuck map[string]time.Time
}

func newCalls(timeout time.Duration, met *metrics) *calls {
	return &calls{timeout: timeout, met: met, stuck: map[string]time.Time{}}
}

// do calls f and waits for it until the timeout or the end of ctx. It returns
// ErrNoAnswer for a call that it abandons, and at once while an abandoned call for
// the same target has not returned: at most one call hangs for each target. An
// abandoned call may still take effect.
func (c *calls) do(ctx context.Context, what, target string, f func() error) error {
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
	// The buffer lets the goroutine end without a receiver.
	done := make(chan error, 1)
	go func() {
		err := f()
		// Clearing the mark and handing over the result are one step under mu.
		// Otherwise a mark could be set after the call had returned, and its target
		// would be refused forever.
		c.mu.Lock()
		// The mark may belong to another call for the same target that still hangs.
		if c.stuck[target].Equal(start) {
			delete(c.stuck, target)
			c.met.stuck.Set(float64(len(c.stuck)))
		}
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
	case err := <-done: // it returned just in time
		return wrap(what, target, err)
	default:
	}
	// Two calls that began at the same time may both hang; the older mark is kept.
	if _, other := c.stuck[target]; !other {
		c.stuck[target] = start
		c.met.stuck.Set(float64(len(c.stuck)))
	}
	return fmt.Errorf("%s %s: %w", what, target, why)
}

// wrap adds action and target, unless err is a PathError, which has both.
func wrap(what, target string, err error) error {
	var named *fs.PathError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s %s: %w", what, target, err)
}

// batch makes calls one after the other on one goroutine. Each call has the whole
// timeout, and is marked as stuck if it does not return. All of them share one
// goroutine and one timer: a pod's cgroup takes twenty calls on v1.
type batch struct {
	*calls

	// Guarded by calls.mu: the current or last call, and whether the batch was
	// abandoned. An abandoned batch makes no further call.
	what, target string
	start        time.Time
	gone         bool
}

// together runs f, which makes its file system calls through the batch. It returns when f
// returns, when a call times out (ErrNoAnswer), or when ctx ends. After ErrNoAnswer f may still
// run, so the caller must not read variables that f writes.
func (c *calls) together(ctx context.Context, f func(*batch) error) error {
	b := &batch{calls: c, start: time.Now()}
	done := make(chan error, 1)
	go func() { done <- f(b) }()
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	for {
		var why error
		select {
		case err := <-done:
			return err
		case <-timer.C:
			why = fmt.Errorf("%w in %v", ErrNoAnswer, c.timeout)
		case <-ctx.Done():
			why = fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
		}
		if left, err := b.abandon(ctx, why); left > 0 {
			timer.Reset(left)
		} else {
			return err
		}
	}
}

// abandon gives the batch up together with its current call, unless that call has
// time left.
func (b *batch) abandon(ctx context.Context, why error) (left time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left = b.timeout - time.Since(b.start); left > 0 && ctx.Err() == nil {
		return left, nil
	}
	b.gone = true
	if b.target == "" {
		return 0, why // no call was made yet
	}
	// Other calls may hang at the same target; the older mark is kept.
	if _, other := b.stuck[b.target]; !other {
		b.stuck[b.target] = b.start
		b.met.stuck.Set(float64(len(b.stuck)))
	}
	return 0, fmt.Errorf("%s %s: %w", b.what, b.target, why)
}

// do makes one call of the batch, with the results of calls.do.
func (b *batch) do(ctx context.Context, what, target string, f func() error) error {
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
		if b.stuck[target].Equal(b.start) {
			delete(b.stuck, target)
			b.met.stuck.Set(float64(len(b.stuck)))
		}
		return fmt.Errorf("%s %s: %w", what, target, ErrNoAnswer)
	}
	// The time between two calls does not count against the timeout.
	b.start = time.Now()
	return wrap(what, target, err)
}

// begin records the start of a call.
func (b *batch) begin(what, target string) error {
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

// files makes the calls of an FS, each limited by calls. They return the errors of
// the FS, or ErrNoAnswer.
type files struct {
	*calls
	fs FS
	in *batch // nil: each call is made by itself
}

// do makes one call, by itself or in a batch.
func (f files) do(ctx context.Context, what, target string, call func() error) error {
	if f.in != nil {
		return f.in.do(ctx, what, target, call)
	}
	return f.calls.do(ctx, what, target, call)
}

// read returns a file's content. Reads are bounded too: a cgroup whose lock the
// kernel holds during a long operation blocks them as well.
func (f files) read(ctx context.Context, path string) ([]byte, error) {
	var out []byte
	err := f.do(ctx, "read", path, func() (err error) {
		data, err := f.fs.Read(path)
		if err == nil {
			out = data
		}
		return err
	})
	if err != nil {
		return nil, err // what a late answer writes to out is not looked at
	}
	return out, nil
}

// write names the value in its error: the kernel's EINVAL alone does not tell
// which of many values it refused.
func (f files) write(ctx context.Context, path, value string) error {
	err := f.do(ctx, "write", path, func() error { return f.fs.Write(path, value) })
	if err != nil {
		return fmt.Errorf("value %q: %w", value, err)
	}
	return nil
}

func (f files) mkdir(ctx context.Context, path string) error {
	return f.do(ctx, "mkdir", path, func() error { return f.fs.Mkdir(path) })
}

func (f files) rmdir(ctx context.Context, path string) error {
	return f.do(ctx, "rmdir", path, func() error { return f.fs.Rmdir(path) })
}

// list names the directories in a directory.
func (f files) list(ctx context.Context, path string) ([]string, error) {
	var out []string
	err := f.do(ctx, "list", path, func() (err error) {
		out, err = f.fs.Dirs(path)
		return err
	})
	if err != nil {
		return nil, err // out is not looked at: a late answer may still write it
	}
	return out, nil
}

// gone reports that a cgroup, or a file of it, is not there. A file that is read
// while its cgroup is removed says ENODEV. It is no proof that the cgroup is
// gone for good: another one of that name may be made at any time.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDevice) }
