package durable

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Disk has the file operations that a Dir uses. Each method is one step; a crash may
// happen between two steps. [OS] is the Disk of the operating system. Tests use
// implementations that simulate power failures.
type Disk interface {
	// MakeDir creates a directory and its missing parents. An existing directory is
	// not an error.
	MakeDir(path string) error
	// Write creates or truncates a file, writes it, and with sync syncs it.
	Write(path string, data []byte, sync bool) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(path string) error
	Read(path string) ([]byte, error)
	// List returns the sorted names of the entries that are not directories.
	List(dir string) ([]string, error)
}

// OS is the Disk of the operating system. Both modes are required. The umask applies
// to DirMode, but not to FileMode.
type OS struct {
	DirMode, FileMode fs.FileMode
	// Limit is the maximum size of a file that Read returns, in bytes. The default is 64 MiB.
	Limit int64
}

const defaultLimit = 64 << 20

// MakeDir creates a directory and its missing parents, and syncs each parent directory.
func (o OS) MakeDir(path string) error { return safefile.MakeDirs(path, o.DirMode) }

// Write writes a file, and with sync syncs it.
func (o OS) Write(path string, data []byte, sync bool) (err error) {
	if err := ask(Change{Op: OpWrite, Path: path, Data: data, Sync: sync}); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, o.FileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Chmod(o.FileMode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

// Rename calls os.Rename.
func (OS) Rename(from, to string) error {
	if err := ask(Change{Op: OpRename, Path: from, To: to}); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Remove calls os.Remove.
func (OS) Remove(path string) error {
	if err := ask(Change{Op: OpRemove, Path: path}); err != nil {
		return err
	}
	return os.Remove(path)
}

// SyncDir syncs a directory, so that its entries survive a power failure.
func (OS) SyncDir(path string) error {
	if err := ask(Change{Op: OpSyncDir, Path: path}); err != nil {
		return err
	}
	return safefile.SyncDir(path)
}

// Read reads a file with safefile.ReadFile. It returns safefile.ErrTooLarge for a file
// larger than Limit, and safefile.ErrNotRegular if path is not a regular file.
func (o OS) Read(path string) ([]byte, error) {
	return safefile.ReadFile(path, cmp.Or(o.Limit, defaultLimit))
}

// List returns the sorted names of the entries that are not directories.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
