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

// Mounter mounts and unmounts file systems, and reads the mount table.
type Mounter interface {
	// Mount mounts a file system at an existing directory.
	Mount(ctx context.Context, fs FileSystem) error
	// Bind mounts a file or directory at a second path, which must exist and be of the same kind.
	Bind(ctx context.Context, b Bind) error
	// Unmount unmounts the topmost mount at target, or returns ErrNotMounted.
	Unmount(ctx context.Context, target string, how How) error
	// Table returns all mounts in the kernel's order. If two mounts have the same path, the later
	// one is on top. The caller may modify the list.
	Table(ctx context.Context) (Table, error)
}

// SubtreeMounter is a [Mounter] that reads the mounts at and below one path without
// parsing the whole table.
type SubtreeMounter interface {
	Under(ctx context.Context, path string) (Table, error)
}

// Sharer is a [Mounter] that can make an existing mount shared.
type Sharer interface {
	// Share makes the mount that contains path shared: mounts that a container makes below it
	// (mountPropagation: Bidirectional) then appear on the node and in other containers.
	Share(ctx context.Context, path string) error
}

// FileSystem has the arguments of mount(8).
type FileSystem struct {
	// Type is the kernel's name of the file system, such as tmpfs.
	Type   string
	Source string
	Target string
	// Options are those of mount(8), such as "ro", "nosuid" or "size=4096".
	Options []string
	// Helper mounts with the mount program, which calls helpers such as mount.nfs.
	Helper bool
}

// Bind describes a bind mount.
type Bind struct {
	// Source is the path of the source. If File is set, it is only the name for errors.
	Source string
	// File is the source as an open file; O_PATH is enough. The caller closes it.
	File   *os.File
	Target string
	// Recursive includes the mounts below the source.
	Recursive bool
	// ReadOnly makes the mount read-only. If RecursiveReadOnly is true, too, the mounts below it
	// are also read-only.
	ReadOnly, RecursiveReadOnly bool
	// Options are flags of mount(8) such as "nosuid". Flags of the source are kept.
	Options     []string
	Propagation Propagation
}

// Propagation says how mounts below a mount propagate to its copies and back
// (mount_namespaces(7)).
type Propagation string

// Values of Propagation. The empty value keeps the kernel's default.
const (
	Private Propagation = "private"
	Slave   Propagation = "slave"
	Shared  Propagation = "shared"
)

// How says what to do if an unmount fails.
type How int

const (
	// Plain tries once.
	Plain How = iota
	// Network is for file systems whose server may be unreachable. The unmount gets a time limit,
	// then it is forced, and finally the mount is detached. A detached mount remains for the
	// processes that use it.
	Network
)

var (
	// ErrNotMounted means that nothing is mounted at a target.
	ErrNotMounted = errors.New("not mounted")
	// ErrRecursiveReadOnly means that the kernel cannot make the mounts below a mount read-only,
	// which needs Linux 5.12.
	ErrRecursiveReadOnly = errors.New("the kernel has no recursive read-only mounts")
)

// maxLayers limits how many mounts on top of each other Clean unmounts.
const maxLayers = 64

// Resolve returns the path under which the kernel lists a mount at target: the target with symbolic
// links resolved in all elements except the last. It does not access the file system mounted at
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

// Find returns the mounts at target, with the topmost one last. It returns none if the path does
// not exist.
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

// Under returns the mounts at and below path, which Resolve returned. If m is a SubtreeMounter,
// Under does not parse the whole table.
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

// Clean unmounts everything that is mounted at target, and removes the mount point, a directory
// or a file. A missing target is not an error. Clean returns an error if something is mounted
// below target, or if the mount point is not empty.
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
		return fmt.Errorf("%s has %d bytes; want an empty mount point", path, info.Size())
	}
	return os.Remove(path)
}

// UnmountAll unmounts every mount at path, which Resolve returned. It returns an error if
// something is mounted below path.
func UnmountAll(ctx context.Context, m Mounter, path string, how How) error {
	for range maxLayers {
		table, err := Under(ctx, m, path)
		if err != nil {
			return err
		}
		at := table.At(path)
		if below := table.Below(path); len(below) > 0 {
			return fmt.Errorf("%s: %s below it is still mounted", path, below[len(below)-1].Target)
		}
		if len(at) == 0 {
			return nil
		}
		if err := m.Unmount(ctx, path, how); err != nil && !errors.Is(err, ErrNotMounted) {
			return err
		}
	}
	return fmt.Errorf("%s is still mounted after %d calls of unmount", path, maxLayers)
}

// UnmountBelow unmounts every mount below path, which Resolve returned, but not a mount at path
// itself. It continues after a failure; the error names each remaining mount.
func UnmountBelow(ctx context.Context, m Mounter, path string, how How) error {
	table, err := Under(ctx, m, path)
	if err != nil {
		return err
	}
	below := table.Below(path)
	// Deepest paths first; of several mounts at one path, the last.
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
