// Package safefile reads files in places that are not trusted: those of a
// container, an image, a plugin, or a mounted file system. It never opens anything
// but a regular file: opening a pipe waits for its writer, and opening a device may
// have effects. It reads at most as many bytes as the caller allows.
//
// The functions differ in the trusted part of a path:
//
//   - [OpenLinked] trusts the whole path
//   - [Open] trusts the directory
//   - [OpenIn] trusts a directory, and follows no link below it
//   - [OpenWithin] follows links below the directory that stay in it
//   - [OpenRooted] follows all links below the directory; none leads out of it
//
// Calls may hang as long as the file system does: see package detached.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Errors for a file. They are wrapped with its path.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file too large")
	ErrTooMany    = errors.New("too many directory entries")
)

// Open opens the regular file at path for reading. Links in its directory are
// followed. A link at its end is an [ErrNotRegular].
func Open(path string) (*os.File, error) {
	return open(path, path, "", alone)
}

// OpenIn opens the regular file at name below the directory dir. name is relative
// and may have several elements. No link below dir is followed. An absolute name,
// or a name that leads out of dir, is an error.
func OpenIn(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, noLinks)
}

// Exists reports whether name exists below the directory dir. name is relative and
// may have several elements. A link at its end counts as existing, wherever it
// leads. A link on the way below dir is an error.
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

// OpenWithin opens a file like OpenIn, but follows links that stay below dir, such
// as those of a ConfigMap volume.
func OpenWithin(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, links)
}

// OpenRooted opens a file like OpenWithin. Absolute links start at dir and ".."
// ends there, as for a process with the root dir. It is for root file systems of
// images. On other systems than Linux, links that lead out are an error.
func OpenRooted(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, rooted)
}

// follow describes which links are followed.
type follow int

const (
	alone   follow = iota // not below a directory
	noLinks               // links are errors
	links                 // links that stay below the directory
	rooted                // all links, with the directory as the root
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

// ReadFile reads the file at path, with [Open]. If it has more than limit bytes,
// the error is [ErrTooLarge], and no data is returned.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadLinked reads a file like [ReadFile], with [OpenLinked].
func ReadLinked(path string, limit int64) ([]byte, error) {
	f, err := OpenLinked(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadIn reads a file like [ReadFile], with [OpenIn].
func ReadIn(dir, name string, limit int64) ([]byte, error) {
	f, err := OpenIn(dir, name)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadWithin reads a file like [ReadFile], with [OpenWithin].
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

// Read reads the rest of f. If there are more than limit bytes, the error is [ErrTooLarge].
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

// Tail returns the last limit bytes of f, and whether they are the whole file.
func Tail(f *os.File, limit int64) (b []byte, whole bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	size := info.Size()
	b, err = io.ReadAll(io.NewSectionReader(f, max(0, size-limit), limit))
	return b, size <= limit, err
}

// Names returns the names of the entries of a directory, unsorted. dir must not be
// a link. If there are more than limit, it returns limit names and an [ErrTooMany].
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

// Entries returns the entries of a directory, like Names.
func Entries(dir string, limit int) ([]fs.DirEntry, error) {
	d, err := openDirectory(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return entriesOf(d, limit)
}

// LinkedEntries returns the entries like [Entries]; dir may be a link.
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
