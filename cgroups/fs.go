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
	// Write hands value to a file that is there already, in one call. The kernel
	// takes each write as one value: a value cut in two would be two of them. The
	// file is not created or truncated.
	Write(path, value string) error
	Mkdir(path string) error
	// Rmdir removes one directory; the files of a cgroup do not count.
	Rmdir(path string) error
	// Dirs names the directories in a directory.
	Dirs(path string) ([]string, error)
}

// calls bounds calls that may hang: a write to memory.max reclaims memory
// first, and D-Bus has no deadline of its own. A hung call cannot be ended; the
// goroutine that made it is given up and counted.
type calls struct {
	timeout time.Duration
	met     *metrics

	// mu guards stuck, and is held by a call's goroutine while it hands over its
	// result.
	mu sync.Mutex
	// Only calls that were given up are in here, by target: a file or a unit.
	stuck map[string]time.Time // what has not come back, and when it was called
}

func newCalls(timeout time.Duration, met *metrics) *calls {
	return &calls{timeout: timeout, met: met, stuck: map[string]time.Time{}}
}

// do calls f and waits for it no longer than the timeout, or ctx. What goes on
// after that keeps other calls for the same target from starting, so that no
// more than one hangs for each. It returns ErrNoAnswer for a call that was
// given up, and at once for one whose target is stuck. A call may have its
// effect after that.
func (c *calls) do(ctx context.Context, what, target string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	c.mu.Lock()
	since, stuck := c.stuck[target]
	c.mu.Unlock()
	if stuck {
		return fmt.Errorf("%s %s: %w to a call of %v ago", what, target, ErrNoAnswer, time.Since(since).Round(time.Second))
	}
	start := time.Now()
	// With room for the result, the goroutine ends even if nobody waits any more.
	done := make(chan error, 1)
	go func() {
		err := f()
		// Clearing the mark and handing over the result are one step under mu.
		// Otherwise a mark could be set after the call had come back, and its target
		// would be refused for good.
		c.mu.Lock()
		// The mark may be that of another call for the same target, which still
		// hangs.
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
	case err := <-done: // after all
		return wrap(what, target, err)
	default:
	}
	// Two calls that began at the same time may both hang; the older mark stays.
	if _, other := c.stuck[target]; !other {
		c.stuck[target] = start
		c.met.stuck.Set(float64(len(c.stuck)))
	}
	return fmt.Errorf("%s %s: %w", what, target, why)
}

// wrap adds what was done to what, unless err is a PathError and says so
// itself.
func wrap(what, target string, err error) error {
	var named *fs.PathError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return fmt.Errorf("%s %s: %w", what, target, err)
}

// files are the calls of an FS, each bounded by calls. They return the errors
// of the FS, or ErrNoAnswer.
type files struct {
	*calls
	fs FS
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
