package durable

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/nodewright/nodewright/internal/safefile"
)

// Disk is what a Dir does to files, one method for each step that a crash can
// come between. [OS] is the operating system's; tests put in others, which lose
// their power.
type Disk interface {
	// MakeDir makes a directory and those above it. One that is there is no
	// error.
	MakeDir(path string) error
	// Write makes or truncates a file, writes it, and syncs it if sync is set.
	Write(path string, data []byte, sync bool) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(path string) error
	Read(path string) ([]byte, error)
	// List names what is in a directory and no directory itself, in order.
	List(dir string) ([]string, error)
}

// OS is the operating system's disk. Both modes are required. Files have theirs
// whatever the umask is, which is taken off that of directories.
type OS struct {
	DirMode, FileMode fs.FileMode
	// Limit is the most bytes that a file may have to be read; 64 MiB.
	Limit int64
}

const defaultLimit = 64 << 20

// MakeDir makes a directory and the missing ones above it, which outlast a power
// failure.
func (o OS) MakeDir(path string) error { return safefile.MakeDirs(path, o.DirMode) }

// Write writes a file, and syncs it if sync is set.
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

// Rename is os.Rename.
func (OS) Rename(from, to string) error {
	if err := ask(Change{Op: OpRename, Path: from, To: to}); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Remove is os.Remove.
func (OS) Remove(path string) error {
	if err := ask(Change{Op: OpRemove, Path: path}); err != nil {
		return err
	}
	return os.Remove(path)
}

// SyncDir makes what a directory says of its files outlast a power failure.
func (OS) SyncDir(path string) error {
	if err := ask(Change{Op: OpSyncDir, Path: path}); err != nil {
		return err
	}
	return safefile.SyncDir(path)
}

// Read is safefile.ReadFile: a file of more than Limit bytes is a
// safefile.ErrTooLarge, and what is no regular file a safefile.ErrNotRegular.
func (o OS) Read(path string) ([]byte, error) {
	return safefile.ReadFile(path, cmp.Or(o.Limit, defaultLimit))
}

// List names what is in a directory and no directory itself, in order.
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
