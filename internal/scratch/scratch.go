// Package scratch creates and removes the directories of volumes that exist only for their
// pod, such as emptyDir, on the node's disk or in memory.
//
// Every function may be called again after a failure or a crash. No function removes files
// behind a mount point or a symbolic link.
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

// Mode is the mode of a volume's directory, which all users of the pod may write to.
// parentMode is the mode of its parents.
const (
	Mode       = fs.FileMode(0o777)
	parentMode = fs.FileMode(0o750)
)

// Dir creates the directory path and its missing parents. If path exists, it returns nil for
// a directory, and an error for a link or another file.
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

// Open sets the mode of a directory to Mode. Dir alone does not, because of the umask.
func Open(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() == Mode {
		return err
	}
	return os.Chmod(path, Mode)
}

// Mount mounts f at f.Target, an existing directory. If a file system is already mounted there,
// Mount does nothing: it returns an error if that file system has another type, or the result of
// check. The function check returns an error if the existing mount differs from f; it may be nil.
func Mount(ctx context.Context, m mount.Mounter, f mount.FileSystem, check func(mount.Entry) error) error {
	found, err := mount.Find(ctx, m, f.Target)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		top := found[len(found)-1]
		if top.Type != f.Type {
			return fmt.Errorf("%s: %s is mounted there, want %s", f.Target, top.Type, f.Type)
		}
		if check != nil {
			return check(top)
		}
		return nil
	}
	return m.Mount(ctx, f)
}

// Remove unmounts path and removes it with its content. It returns an error if there is a mount
// below path, and nil if path does not exist.
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
