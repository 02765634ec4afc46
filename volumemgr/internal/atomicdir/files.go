package atomicdir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/nodewright/nodewright/internal/safefile"
)

// files is the directory of a Writer, with one method for each step that may fail or be followed
// by a crash. Paths are relative to the directory.
type files interface {
	readlink(name string) (string, error)
	// readFile reads a regular file of at most limit bytes.
	readFile(name string, limit int64) ([]byte, error)
	lstat(name string) (fs.FileInfo, error)
	// list calls each for every entry of a directory until each returns false.
	list(dir string, each func(fs.DirEntry) (more bool)) error
	mkdir(name string) error
	// create creates a file that only the process's user may read.
	create(name string, data []byte, sync bool) error
	chmod(name string, mode fs.FileMode) error
	lchown(name string, uid, gid int) error
	symlink(to, name string) error
	rename(from, to string) error
	remove(name string) error
	// removeAll removes name, of any type, and everything below it.
	removeAll(name string) error
	syncDir(name string) error
	close() error
}

// rootFiles is a directory of the operating system.
type rootFiles struct{ *os.Root }

func openRoot(dir string) (files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return rootFiles{root}, nil
}

func (r rootFiles) readlink(name string) (string, error)      { return r.Readlink(name) }
func (r rootFiles) lstat(name string) (fs.FileInfo, error)    { return r.Lstat(name) }
func (r rootFiles) mkdir(name string) error                   { return r.Mkdir(name, 0o700) }
func (r rootFiles) chmod(name string, mode fs.FileMode) error { return r.Chmod(name, mode) }
func (r rootFiles) lchown(name string, uid, gid int) error    { return r.Lchown(name, uid, gid) }
func (r rootFiles) symlink(to, name string) error             { return r.Symlink(to, name) }
func (r rootFiles) rename(from, to string) error              { return r.Rename(from, to) }
func (r rootFiles) remove(name string) error                  { return r.Remove(name) }
func (r rootFiles) close() error                              { return r.Close() }

func (r rootFiles) readFile(name string, limit int64) ([]byte, error) {
	return safefile.ReadIn(r.Name(), name, limit)
}

// batch is the number of directory entries that are read at a time.
const batch = 256

func (r rootFiles) list(dir string, each func(fs.DirEntry) bool) error {
	// O_NONBLOCK, since opening a pipe in place of the directory would block.
	d, err := r.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	for {
		entries, err := d.ReadDir(batch)
		for _, e := range entries {
			if !each(e) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r rootFiles) create(name string, data []byte, sync bool) (err error) {
	f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if !sync {
		return nil
	}
	return f.Sync()
}

func (r rootFiles) syncDir(name string) error {
	d, err := r.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
