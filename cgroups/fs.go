package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

// newCalls returns the queue for calls of the kernel and of systemd. Its metrics count the calls
// that hang.
func newCalls(timeout time.Duration, met *metrics) *kernel.Calls {
	return kernel.NewCalls(timeout, func(by int) { met.stuck.Add(float64(by)) })
}

// FS is the part of a file system that this package uses. Paths are absolute. Methods return the
// errors of the system calls: errors.Is matches fs.ErrNotExist and numbers of package syscall.
// Methods are called from any goroutine, and may hang: a Manager waits no longer than ten seconds.
type FS interface {
	Read(path string) ([]byte, error)
	// Write writes value to an existing file in one call: the kernel takes each
	// write as one value. The file is not created or truncated.
	Write(path, value string) error
	Mkdir(path string) error
	// Rmdir removes one directory. A cgroup can be removed although it still has its files.
	Rmdir(path string) error
	// Dirs returns the names of the directories in a directory.
	Dirs(path string) ([]string, error)
}

// files makes the calls of an FS, each limited by Calls. They return the errors of
// the FS, or ErrNoAnswer.
type files struct {
	*kernel.Calls
	fs FS
	in *kernel.Batch // nil if each call is made by itself
}

// do makes one call, by itself or in a batch.
func (f files) do(ctx context.Context, what, target string, call func() error) error {
	if f.in != nil {
		return f.in.Do(ctx, what, target, call)
	}
	return f.Calls.Do(ctx, what, target, call)
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

// write writes a value to a file. Its error names the value, since the kernel's EINVAL does not say
// which of many values it refused.
func (f files) write(ctx context.Context, path, value string) error {
	err := f.do(ctx, "write", path, func() error { return f.fs.Write(path, value) })
	if err != nil {
		return fmt.Errorf("write value %q: %w", value, err)
	}
	return nil
}

func (f files) mkdir(ctx context.Context, path string) error {
	return f.do(ctx, "mkdir", path, func() error { return f.fs.Mkdir(path) })
}

func (f files) rmdir(ctx context.Context, path string) error {
	return f.do(ctx, "rmdir", path, func() error { return f.fs.Rmdir(path) })
}

// list returns the names of the directories in a directory.
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

// gone reports that a cgroup or one of its files does not exist. A read of a file whose cgroup is
// being removed returns ENODEV. A cgroup with the same name may be created at any time.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDevice) }
