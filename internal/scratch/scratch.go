// Package scratch makes and removes the directories that volumes of a pod's own
// are made of, on the node's disk or in its memory.
//
// Every function may be called again after a failure or a crash. Nothing is
// removed that lies behind a mount point or a symbolic link.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/internal/rmtree"
	"github.com/nodewright/nodewright/volumemgr/mount"
)

// Modes of a volume's directory, open to all of the pod's users, and of its
// parents.
const (
	Mode       = fs.FileMode(0o777)
	parentMode = fs.FileMode(0o750)
)

// Dir makes the directory path with its parents. What is there is kept, as long
// as it is a directory and no link.
func Dir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), parentMode); err != nil {
		return err
	}
	if err := os.Mkdir(path, Mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: want a directory, it is %v", path, info.Mode().Type())
	}
	return nil
}

// Open gives the directory the mode that lets all of the pod's users in,
// whatever the umask.
func Open(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == Mode {
		return err
	}
	return os.Chmod(path, Mode)
}

// Mount mounts f at f.Target, a directory that is there, unless it is mounted
// already: same, if not nil, reports whether a mount is good. If it fails, nothing
// is mounted.
func Mount(ctx context.Context, m mount.Mounter, f mount.FileSystem, same func(mount.Entry) error) error {
	found, err := mount.Find(ctx, m, f.Target)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		top := found[len(found)-1]
		if top.Type != f.Type {
			return fmt.Errorf("%s: %s is mounted there, want %s", f.Target, top.Type, f.Type)
		}
		if same != nil {
			return same(top)
		}
		return nil
	}
	return m.Mount(ctx, f)
}

// Remove takes down what is mounted at path and removes it with its content. It
// refuses while something is mounted below. What is not there is a success.
func Remove(ctx context.Context, m mount.Mounter, path string) error {
	real, err := mount.Resolve(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := mount.UnmountAll(ctx, m, real, mount.Plain); err != nil {
		return err
	}
	return rmtree.Remove(real)
}
