package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDirs makes a directory and the missing ones above it, as [os.MkdirAll], and
// syncs the parent of each that it makes: a file that is synced in a new directory
// is found after a power failure only if the directory's own name was synced too
// (fsync(2)). The mode is that of the new directories, less the umask.
func MakeDirs(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return os.MkdirAll(path, mode) // its error names the file in the way
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDirs(parent, mode); err != nil {
			return err
		}
	}
	// MkdirAll, since another process may have made the directory meanwhile.
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return SyncDir(parent)
}

// SyncDir makes the names in a directory outlast a power failure.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
