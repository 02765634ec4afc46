package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDirs creates a directory and its missing parents, like [os.MkdirAll], and syncs the
// parent of each new directory. Without this sync, a power failure may delete a synced
// file in a new directory (fsync(2)). New directories have the mode mode without the bits
// of the umask.
func MakeDirs(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return os.MkdirAll(path, mode) // returns the error for a file that is not a directory
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDirs(parent, mode); err != nil {
			return err
		}
	}
	// Not Mkdir: another process may have created the directory in the meantime.
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return SyncDir(parent)
}

// SyncDir syncs a directory, so that its entries survive a power failure.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
