// Package safefile reads files that somebody else may have put there: a
// container, an image, a plugin, the owner of a mounted file system. Nothing
// but a regular file is ever opened, not even for a moment: opening a pipe
// waits for its writer, and opening a device may have effects. No more is read
// than the caller allows.
//
// How far a path is trusted is in the name of the function: [OpenLinked] trusts
// all of it, [Open] the directory, [OpenIn] nothing below a directory,
// [OpenWithin] follows links below it as long as they stay there, and
// [OpenRooted] follows all links below it and none leads out.
//
// A file system may still keep every call waiting for as long as it likes: see
// package detached.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Errors that say what is wrong with a file. They come wrapped, with its path.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file too large")
	ErrTooMany    = errors.New("too many directory entries")
)

// Open opens the regular file at path for reading. Links are followed in its
// directory, but not at its end: there they are an [ErrNotRegular].
func Open(path string) (*os.File, error) {
	return open(path, path, "", alone)
}

// OpenIn opens the regular file at name, which is relative and may have
// several elements, below the directory dir. No link below dir is followed. An
// absolute name, or one that leads out of dir, is an error.
func OpenIn(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, noLinks)
}

// Exists reports whether there is anything at name, which is relative and may have
// several elements, below the directory dir: a link at its end counts, wherever it leads.
// A link on the way below dir is not followed, but an error.
func Exists(dir, name string) (bool, error) {
	if err := local(name); err != nil {
		return false, err
	}
	err := exists(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// OpenWithin is OpenIn, but follows links that stay below dir, as those of a
// volume that is written atomically do.
func OpenWithin(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, links)
}

// OpenRooted is OpenWithin, but absolute links begin at dir and ".." ends there,
// as for a process whose root it is: for the root file systems of images. Where
// there is no such call but on Linux, links that lead out are an error.
func OpenRooted(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, rooted)
}

// follow describes which links are followed.
type follow int

const (
	alone   follow = iota // there is no name below a directory
	noLinks               // none below the directory
	links                 // those that stay below it
	rooted                // all, with the directory as the root
)

func local(name string) error {
	if !filepath.IsLocal(name) {
		return &fs.PathError{Op: "open", Path: name, Err: errors.New("want a path that is relative and does not lead out of its directory")}
	}
	return nil
}

func notRegular(path string, mode fs.FileMode) error {
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but of mode %v", ErrNotRegular, mode.Type())}
}

// ReadFile reads the file at path as [Open] opens it. One of more than limit
// bytes is an [ErrTooLarge], and nothing of it is returned.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadLinked reads a file as [OpenLinked] opens it, otherwise as [ReadFile].
func ReadLinked(path string, limit int64) ([]byte, error) {
	f, err := OpenLinked(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadIn reads a file as [OpenIn] opens it, otherwise as [ReadFile].
func ReadIn(dir, name string, limit int64) ([]byte, error) {
	f, err := OpenIn(dir, name)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadWithin reads a file as [OpenWithin] opens it, otherwise as [ReadFile].
func ReadWithin(dir, name string, limit int64) ([]byte, error) {
	f, err := OpenWithin(dir, name)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

func readAndClose(f *os.File, limit int64) ([]byte, error) {
	defer func() { _ = f.Close() }()
	return Read(f, limit)
}

// Read reads what is left of f. More than limit bytes are an [ErrTooLarge].
func Read(f *os.File, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: want at most %d bytes", ErrTooLarge, limit)}
	}
	return b, nil
}

// Tail reads the last limit bytes of f, and reports whether they are all of it.
func Tail(f *os.File, limit int64) (b []byte, whole bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	size := info.Size()
	b, err = io.ReadAll(io.NewSectionReader(f, max(0, size-limit), limit))
	return b, size <= limit, err
}

// Names returns the names of the entries of a directory, in no order. The
// directory itself is not a link. With more than limit entries it returns as
// many, and an [ErrTooMany].
func Names(dir string, limit int) ([]string, error) {
	d, err := openDirectory(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(limit + 1)
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case len(names) > limit:
		names, err = names[:limit], tooMany(dir, limit)
	}
	return names, err
}

// Entries is Names, with what the entries are.
func Entries(dir string, limit int) ([]fs.DirEntry, error) {
	d, err := openDirectory(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return entriesOf(d, limit)
}

// LinkedEntries is [Entries] of a directory that may be a link.
func LinkedEntries(dir string, limit int) ([]fs.DirEntry, error) {
	d, err := openDirectory(dir, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return entriesOf(d, limit)
}

func entriesOf(d *os.File, limit int) ([]fs.DirEntry, error) {
	entries, err := d.ReadDir(limit + 1)
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case len(entries) > limit:
		entries, err = entries[:limit], tooMany(d.Name(), limit)
	}
	return entries, err
}
