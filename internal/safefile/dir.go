package safefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir is an open directory. Its methods use the open directory, even if its path leads to
// another file by now. They follow no links. Except for Exists, names must have a single
// element.
type Dir struct {
	path string
	root *os.Root
	self *os.File
}

// OpenDir opens the directory name below the directory dir. name is relative, and may have
// several elements or be ".". OpenDir follows links in the path dir, but not in name: for
// a link, or another file that is not a directory, it returns ENOTDIR.
func OpenDir(dir, name string) (*Dir, error) {
	return reach(dir, name, func(*os.Root, string) error { return fs.ErrNotExist })
}

// MakeDir opens a directory like OpenDir, and creates missing directories below dir. New
// directories get the permissions perm, independent of the umask; existing ones keep
// theirs. dir itself must exist.
func MakeDir(dir, name string, perm fs.FileMode) (*Dir, error) {
	return reach(dir, name, func(in *os.Root, element string) error {
		if err := in.Mkdir(element, perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return in.Chmod(element, perm)
	})
}

// reach opens the directory name below dir. It calls missing for each missing element, and fails
// if missing returns an error.
func reach(dir, name string, missing func(in *os.Root, element string) error) (*Dir, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	if d := atOnce(dir, name); d != nil {
		return d, nil
	}
	at, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	for element := range strings.SplitSeq(filepath.Clean(name), string(filepath.Separator)) {
		if element == "." { // name is dir itself
			break
		}
		next, err := descend(at, element, missing)
		_ = at.Close()
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		at = next
	}
	self, err := heldBy(at, path)
	if err != nil {
		_ = at.Close()
		return nil, err
	}
	return &Dir{path: path, root: at, self: self}, nil
}

// descend opens the directory element in the directory parent. It returns EAGAIN if another process
// replaces the directory between the check and the open.
func descend(parent *os.Root, element string, missing func(*os.Root, string) error) (*os.Root, error) {
	before, err := parent.Lstat(element)
	if errors.Is(err, fs.ErrNotExist) {
		if err := missing(parent, element); err != nil {
			return nil, err
		}
		before, err = parent.Lstat(element)
	}
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, syscall.ENOTDIR
	}
	next, err := parent.OpenRoot(element)
	if err != nil {
		return nil, err
	}
	if now, err := next.Stat("."); err != nil || !os.SameFile(before, now) {
		_ = next.Close()
		return nil, syscall.EAGAIN
	}
	return next, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return errors.Join(d.self.Close(), d.root.Close()) }

// Entries returns the entries of the directory, unsorted. If there are more than limit, it
// returns limit entries and an [ErrTooMany]. Calls must not overlap. The method Info of an
// entry calls [Dir.Lstat].
func (d *Dir) Entries(limit int) ([]fs.DirEntry, error) {
	if _, err := d.self.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	list, err := entriesOf(d.self, limit)
	held := make([]entry, len(list))
	for i := range list {
		held[i] = entry{list[i], d}
		list[i] = &held[i]
	}
	return list, err
}

// entry is an entry of an open Dir. Its method Info uses the open directory, since the path
// of the Dir may lead to another directory by now.
type entry struct {
	fs.DirEntry
	in *Dir
}

// Info implements fs.DirEntry.
func (e *entry) Info() (fs.FileInfo, error) { return e.in.Lstat(e.Name()) }

func tooMany(dir string, limit int) error {
	return &fs.PathError{Op: "read", Path: dir, Err: fmt.Errorf("%w: want at most %d", ErrTooMany, limit)}
}

// Lstat returns the file information of an entry.
func (d *Dir) Lstat(name string) (fs.FileInfo, error) {
	if err := single(name); err != nil {
		return nil, err
	}
	return d.root.Lstat(name)
}

// Exists reports whether name exists below the open directory; see the function [Exists].
// name may have several elements.
func (d *Dir) Exists(name string) (bool, error) {
	if err := local(name); err != nil {
		return false, err
	}
	err := d.exists(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Open opens a regular file for reading. It returns [ErrNotRegular] for other files.
func (d *Dir) Open(name string) (*os.File, error) {
	if err := single(name); err != nil {
		return nil, err
	}
	return d.openAs(name, os.O_RDONLY)
}

// Create creates a file and opens it for writing. It fails if name exists. The permissions
// are perm without the bits of the umask.
func (d *Dir) Create(name string, perm fs.FileMode) (*os.File, error) {
	if err := single(name); err != nil {
		return nil, err
	}
	return d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

// Remove removes a file, a link or an empty directory.
func (d *Dir) Remove(name string) error {
	if err := single(name); err != nil {
		return err
	}
	return d.root.Remove(name)
}

// RemoveFiles removes the entries for whose names match returns true, except directories.
// It examines at most limit entries, so more matching files may remain.
func (d *Dir) RemoveFiles(limit int, match func(name string) bool) error {
	entries, err := d.Entries(limit)
	if errors.Is(err, ErrTooMany) {
		err = nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() || !match(e.Name()) {
			continue
		}
		if err := d.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Rename renames an entry within the directory. It replaces an existing newName.
func (d *Dir) Rename(oldName, newName string) error {
	if err := errors.Join(single(oldName), single(newName)); err != nil {
		return err
	}
	return d.root.Rename(oldName, newName)
}

// Write writes data to the file name, with the permissions perm, independent of the umask.
// It does not change a file that already has this content and these permissions; to find
// out, it reads at most len(data) bytes. Write writes into an existing regular file, so
// that processes that have it open or mounted see the data. After a crash such a file may
// have a part of data. Write replaces a file that has several hard links, cannot be opened
// or is not regular. It does not replace a directory.
func (d *Dir) Write(name string, data []byte, perm fs.FileMode) error {
	if err := single(name); err != nil {
		return err
	}
	same, there := d.has(name, data, perm)
	if same {
		return nil
	}
	if !there {
		return d.Replace(name, data, perm)
	}
	f, err := d.openAs(name, os.O_WRONLY)
	if err != nil {
		return d.Replace(name, data, perm)
	}
	if !onlyName(f) {
		_ = f.Close()
		return d.Replace(name, data, perm)
	}
	return errors.Join(f.Truncate(0), fill(f, data, perm))
}

// has reports whether a file has the content data and the permissions perm (same), and whether the
// file exists. If it cannot be opened, same is false and exists is true.
func (d *Dir) has(name string, data []byte, perm fs.FileMode) (same, exists bool) {
	f, err := d.Open(name)
	if err != nil {
		return false, !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(data)) || info.Mode().Perm() != perm.Perm() {
		return false, true
	}
	have, err := Read(f, int64(len(data)))
	return err == nil && bytes.Equal(have, data), true
}

// Replace replaces the file name by a new file with data and the permissions perm. After a crash of
// the process the file has either the complete old data or the complete new data. Replace does not
// sync: after a power failure the data may be lost. It does not replace a directory.
func (d *Dir) Replace(name string, data []byte, perm fs.FileMode) error {
	if err := single(name); err != nil {
		return err
	}
	temp := "." + name + ".tmp"
	if err := d.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := d.Create(temp, perm)
	if err != nil {
		return err
	}
	err = fill(f, data, perm)
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		_ = d.root.Remove(temp)
	}
	return err
}

// fill writes data to a file, sets its permissions and closes it.
func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	return errors.Join(err, f.Close())
}

// single returns an error unless name is a valid name of one entry.
func single(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, filepath.Separator) {
		return &fs.PathError{Op: "open", Path: name, Err: errors.New("want the name of a directory entry, without a slash")}
	}
	return nil
}
