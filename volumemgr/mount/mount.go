package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mounter is what volumes need of a system's mounts.
type Mounter interface {
	// Mount mounts a file system at a directory that is there.
	Mount(ctx context.Context, fs FileSystem) error
	// Bind makes a file or directory appear at a second place, which is there
	// and of the same kind.
	Bind(ctx context.Context, b Bind) error
	// Unmount takes down the topmost mount at target, or says ErrNotMounted.
	Unmount(ctx context.Context, target string, how How) error
	// Table is all that is mounted, in the order of the kernel's list: of two
	// mounts at one place the later is on top. The list is the caller's.
	Table(ctx context.Context) (Table, error)
}

// SubtreeMounter is a [Mounter] that finds the mounts at and below one path without
// reading the whole table.
type SubtreeMounter interface {
	Under(ctx context.Context, path string) (Table, error)
}

// FileSystem is one to be mounted.
type FileSystem struct {
	// Type is the kernel's name for it, such as tmpfs.
	Type   string
	Source string
	Target string
	// Options are those of mount(8), such as "ro", "nosuid" or "size=4096".
	Options []string
	// Helper mounts with the mount program, which knows mount.nfs and its like.
	Helper bool
}

// Bind is a bind mount to be made.
type Bind struct {
	// Source is a path; or, if File is not nil, what errors call it.
	Source string
	// File is the source as an open file; O_PATH is enough. It stays the
	// caller's.
	File   *os.File
	Target string
	// Recursive brings what is mounted below the source too.
	Recursive bool
	// ReadOnly makes the mount read-only; with RecursiveReadOnly also all that
	// comes with it from below the source.
	ReadOnly, RecursiveReadOnly bool
	// Options are flags of mount(8) such as "nosuid". Those of the source stay.
	Options     []string
	Propagation Propagation
}

// Propagation describes how mounts made below a mount pass to its copies and back
// (mount_namespaces(7)).
type Propagation string

// The zero value leaves it as the kernel makes it.
const (
	Private Propagation = "private"
	Slave   Propagation = "slave"
	Shared  Propagation = "shared"
)

// How describes what is done about a mount that does not go.
type How int

const (
	// Plain asks the kernel once.
	Plain How = iota
	// Network is for file systems whose server may be gone: asking gets a time
	// limit, then the mount is forced, and at last detached, which leaves it to
	// whoever still uses it.
	Network
)

var (
	// ErrNotMounted means that nothing is mounted at a target.
	ErrNotMounted = errors.New("not mounted")
	// ErrRecursiveReadOnly means that the kernel cannot make mounts below a
	// mount read-only; it takes Linux 5.12.
	ErrRecursiveReadOnly = errors.New("the kernel has no recursive read-only mounts")
)

// maxLayers is how many mounts on top of each other Clean takes down.
const maxLayers = 64

// Resolve is the path under which the kernel lists a mount at target: without
// symbolic links above the last element. It does not touch what is mounted at
// target, which may hang.
func Resolve(target string) (string, error) {
	target = filepath.Clean(target)
	if target == "/" {
		return target, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(target)), nil
}

// Find is what is mounted at target, the topmost last; nothing if the path is
// not there.
func Find(ctx context.Context, m Mounter, target string) ([]Entry, error) {
	path, err := Resolve(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if c, ok := m.(interface{ clear(path string) bool }); ok && c.clear(path) {
		return nil, nil
	}
	table, err := Under(ctx, m, path)
	if err != nil {
		return nil, err
	}
	return table.At(path), nil
}

// Under is what is mounted at path, which Resolve gave, and below it. It is
// quicker than looking through the whole table where m can do that.
func Under(ctx context.Context, m Mounter, path string) (Table, error) {
	if u, ok := m.(SubtreeMounter); ok {
		return u.Under(ctx, path)
	}
	table, err := m.Table(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(table, func(e Entry) bool { return e.Target != path && !IsBelow(e.Target, path) }), nil
}

// Clean takes down all that is mounted at target and removes the directory, or
// the file, that it was mounted on. What is not there is a success. It refuses
// while something is mounted below, and never removes a directory that has
// something in it, nor a file that is not empty.
func Clean(ctx context.Context, m Mounter, target string, how How) error {
	path, err := Resolve(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := UnmountAll(ctx, m, path, how); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link; nothing was mounted there", path)
	case info.Mode().IsRegular() && info.Size() > 0:
		return fmt.Errorf("%s has %d bytes; what is mounted on is empty", path, info.Size())
	}
	return os.Remove(path)
}

// UnmountAll takes down every mount at path, which Resolve gave. It refuses
// while something is mounted below.
func UnmountAll(ctx context.Context, m Mounter, path string, how How) error {
	for range maxLayers {
		table, err := Under(ctx, m, path)
		if err != nil {
			return err
		}
		at := table.At(path)
		if below := table.Below(path); len(below) > 0 {
			return fmt.Errorf("%s: %s is still mounted below", path, below[len(below)-1].Target)
		}
		if len(at) == 0 {
			return nil
		}
		if err := m.Unmount(ctx, path, how); err != nil && !errors.Is(err, ErrNotMounted) {
			return err
		}
	}
	return fmt.Errorf("%s is still mounted after %d times", path, maxLayers)
}

// UnmountBelow takes down every mount below path, which Resolve gave, and leaves what is mounted
// at path itself. It unmounts what it can: the error names each mount that stays.
func UnmountBelow(ctx context.Context, m Mounter, path string, how How) error {
	table, err := Under(ctx, m, path)
	if err != nil {
		return err
	}
	below := table.Below(path)
	// The deepest first; of several at one place, the last.
	slices.Reverse(below)
	slices.SortStableFunc(below, func(a, b Entry) int { return strings.Count(b.Target, "/") - strings.Count(a.Target, "/") })
	var errs []error
	for _, e := range below {
		if err := m.Unmount(ctx, e.Target, how); err != nil && !errors.Is(err, ErrNotMounted) {
			errs = append(errs, fmt.Errorf("%s is still mounted: %w", e.Target, err))
		}
	}
	return errors.Join(errs...)
}
