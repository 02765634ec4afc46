package crilog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nodewright/nodewright/internal/slowfile"
)

// Options defines which part of a log is copied. The zero value of each field except Tail means no
// restriction. With Tail 0 a copy begins at the end of the file.
type Options struct {
	Tail       int64     // the number of lines of the file to begin with; negative means all
	Since      time.Time // drops lines that are older
	Limit      int64     // limit of the written output, in bytes
	Stream     string    // Stdout or Stderr; "" means both
	Timestamps bool      // puts each line's time (RFC 3339 with nanoseconds) before it

	// Follow continues with new output until ctx ends, or until Ended reports that there will be
	// no more output. Ended is called whenever all output so far has been written, and at least
	// once a second. If Ended is nil, there may always be more output.
	Follow bool
	Ended  func() bool

	Flush func() // called whenever all output so far has been written; nil means no call
	// Root is a directory above the log. No symbolic link between Root and the log is followed. If
	// Root is "", links in the path of the file's directory are followed.
	Root string
}

// Copy writes the log at path to w, restricted by o. It returns nil when all is written, or when
// ctx ends and o.Follow is set. It returns an error if the file system does not answer within 10
// seconds.
func Copy(ctx context.Context, w io.Writer, path string, o Options) error {
	if o.Ended == nil {
		o.Ended = func() bool { return false }
	}
	if o.Flush == nil {
		o.Flush = func() {}
	}
	c := &follower{disk: newDisk(ctx, o.Root, path), opts: o, out: lineWriter{w: w, opts: o, left: o.Limit}}
	defer c.close()
	if err := c.open(); err != nil {
		return err
	}
	err := c.copy(ctx)
	if errors.Is(err, errLimit) || o.Follow && ctx.Err() != nil {
		o.Flush()
		return nil
	}
	return err
}

// follower is the state of one call of Copy.
type follower struct {
	disk *disk
	opts Options
	out  lineWriter

	f     *slowfile.File
	r     *bufio.Reader
	known []string // times of the rotated files that existed while f was the current file
	watch *fsnotify.Watcher
}

func (c *follower) close() {
	if c.f != nil {
		_ = c.f.Close()
	}
	if c.watch != nil {
		_ = c.watch.Close()
	}
}

// open opens the current file, and sets the position at which the copy begins.
func (c *follower) open() error {
	if c.opts.Follow {
		// Without a watch, as where there are no inotify instances left, the
		// second's limit of await does.
		c.watch = c.disk.watch()
	}
	if err := c.current(); err != nil {
		return err
	}
	start, err := tailStart(c.f, c.f.Info().Size(), c.opts.Tail)
	if err != nil {
		return err
	}
	if _, err := c.f.Seek(start, io.SeekStart); err != nil {
		return err
	}
	c.r = bufio.NewReaderSize(c.f, 32<<10)
	return nil
}

// current opens the current file of the log, and stores the times of the rotated files in c.known.
func (c *follower) current() error {
	// Whoever makes and removes files named as rotations goes on for ever.
	for range maxRenamed {
		before, err := c.stamps()
		if err != nil {
			return err
		}
		f, err := c.disk.open(c.disk.path)
		if err != nil {
			return err
		}
		if c.known, err = c.stamps(); err != nil {
			_ = f.Close()
			return err
		}
		if !slices.Equal(before, c.known) {
			_ = f.Close() // which of the rotations it is, if any, is not known
			continue
		}
		if c.f != nil {
			_ = c.f.Close()
		}
		c.f = f
		return nil
	}
	return fmt.Errorf("log %s was renamed %d times while it was opened", c.disk.path, maxRenamed)
}

// maxRenamed is how often current tries again because the rotated files changed while the log was
// opened.
const maxRenamed = 100

func (c *follower) stamps() ([]string, error) {
	if !c.opts.Follow {
		return nil, nil
	}
	return c.disk.stamps()
}

func (c *follower) copy(ctx context.Context) error {
	for {
		if err := c.out.drain(c.r); err != nil {
			return err
		}
		c.opts.Flush()
		if !c.opts.Follow {
			return c.out.rest()
		}
		over := c.opts.Ended()
		if !over && !c.await(ctx) {
			return nil
		}
		// A rotation puts a new file in the old one's place; what the old
		// one still got comes first.
		if err := c.out.drain(c.r); err != nil {
			return err
		}
		switch moved, err := c.rotated(ctx); {
		case err != nil:
			return err
		case moved:
		case over:
			c.opts.Flush()
			return c.out.rest()
		}
	}
}

// rotated switches to the new file if the log was rotated. First it copies the files of further
// rotations since the last check. It reports whether there is more to copy.
func (c *follower) rotated(ctx context.Context) (bool, error) {
	now, err := c.disk.look()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // between a rotation's two halves, or removed
	}
	if err != nil {
		return false, err
	}
	if os.SameFile(now, c.f.Info()) {
		return c.truncated(now)
	}
	// The runtime may write to the old file until it opens the new one, which
	// it has done by now.
	if err := c.out.drain(c.r); err != nil {
		return false, err
	}
	old, last := c.known, c.f
	c.f = nil
	err = c.current()
	_ = last.Close()
	if errors.Is(err, fs.ErrNotExist) { // rotated once more at this moment
		return true, c.reopen(ctx, old)
	}
	if err != nil {
		return false, err
	}
	if err := c.between(missed(old, c.known)); err != nil {
		return false, err
	}
	c.r.Reset(c.f)
	return true, nil
}

// reopen waits until the runtime has made the log again. It is called if another rotation began
// while rotated was running. old are the times of the rotated files before.
func (c *follower) reopen(ctx context.Context, old []string) error {
	for {
		err := c.current()
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || c.opts.Ended() {
			return err
		}
		if !c.await(ctx) {
			return ctx.Err()
		}
	}
	if err := c.between(missed(old, c.known)); err != nil {
		return err
	}
	c.r.Reset(c.f)
	return nil
}

// between copies rotated files that this copy has never read as the current file.
func (c *follower) between(stamps []string) error {
	for _, s := range stamps {
		f, err := c.disk.openRotated(s)
		if errors.Is(err, fs.ErrNotExist) {
			continue // there were so many that it has been removed
		}
		if err != nil {
			return err
		}
		c.r.Reset(f)
		err = c.out.drain(c.r)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// truncated begins at the start of the file if the file was truncated in place, and reports whether
// it was.
func (c *follower) truncated(now os.FileInfo) (bool, error) {
	at, err := c.f.Seek(0, io.SeekCurrent)
	if err != nil || now.Size() >= at {
		return false, err
	}
	if _, err := c.f.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	c.r.Reset(c.f)
	return true, nil
}

// await waits until the log may have grown, been rotated or ended, for at most a second: the end of
// a container changes no file. It returns false if ctx has ended.
func (c *follower) await(ctx context.Context) bool {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	var events <-chan fsnotify.Event
	var errs <-chan error
	if c.watch != nil {
		events, errs = c.watch.Events, c.watch.Errors
	}
	select {
	case <-ctx.Done():
		return false
	case <-events:
	case err := <-errs:
		_ = err // events may have been lost: look
	case <-t.C:
	}
	return true
}
