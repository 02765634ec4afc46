// Package scratch creates and removes the directories of a pod's own volumes, on
// the node's disk or in its memory.
//
// Every function may be repeated after a failure or a crash. No function removes
// files behind a mount point or a symbolic link.
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

// Modes: of a volume's directory, which is open to all users of the pod, and of its
// parents.
const (
	Mode       = fs.FileMode(0o777)
	parentMode = fs.FileMode(0o750)
)

// Dir creates the directory path with its parents. An existing directory is kept; a
// link or another file is an error.
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
		return fmt.Errorf("%s: is %v, want a directory", path, info.Mode().Type())
	}
	return nil
}

// Open changes the mode of the directory to Mode, whatever the umask.
func Open(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == Mode {
		return err
	}
	return os.Chmod(path, Mode)
}

// Mount mounts f at f.Target, an existing directory, unless f is already mounted there. same
// returns an error for a mount that is not f; it may be nil. If Mount fails, nothing is mounted.
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

// Remove unmounts path and removes it with its content. It returns an error if there is a mount
// below path. It is not an error if path does not exist.
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
