package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeDirs creates a directory and its missing parents, like [os.MkdirAll], and
// syncs the parent of each new directory. Without that, a synced file in a new
// directory may be lost in a power failure (fsync(2)). mode is the mode of new
// directories, less the umask.
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

// SyncDir syncs the names in a directory, so that they survive a power failure.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
