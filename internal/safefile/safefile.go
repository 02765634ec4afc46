// Package safefile reads files in places that are not trusted: the files of a container,
// an image, a plugin, or a mounted file system. It opens only regular files and
// directories: the open of a pipe waits for a writer, and the open of a device may have
// effects. It reads at most as many bytes as the caller allows.
//
// The functions differ in the links that they follow:
//
//   - [OpenLinked] follows all links: the whole path is trusted
//   - [Open] follows links in the directory part of the path, which is trusted
//   - [OpenIn] follows no link below a trusted directory
//   - [OpenWithin] follows links below a trusted directory that do not lead out of it
//   - [OpenRooted] follows all links below a trusted directory as if it were the root
//
// Calls hang while the file system hangs: see package detached.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Errors of this package. Functions wrap them in a fs.PathError.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("file too large")
	ErrTooMany    = errors.New("too many directory entries")
)

// Open opens the regular file at path for reading. It follows links in the directory part
// of path. If the file itself is a link, or not regular, it returns [ErrNotRegular].
func Open(path string) (*os.File, error) {
	return open(path, path, "", alone)
}

// OpenIn opens the regular file name below the directory dir for reading. name is relative
// and may have several elements. OpenIn follows no link below dir. It fails if name is
// absolute or leads out of dir.
func OpenIn(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, noLinks)
}

// Exists reports whether name exists below the directory dir. name is relative and may
// have several elements. If the last element is a link, it exists, even if the link leads
// nowhere. If another element is a link, Exists returns an error.
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

// OpenWithin opens a file like OpenIn, but follows links that lead to files below dir,
// such as the links of a ConfigMap volume.
func OpenWithin(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, links)
}

// OpenRooted opens a file like OpenIn, but follows all links as for a process with the
// root directory dir: absolute links start at dir, and ".." in dir is dir itself. It is
// for root file systems of images. On systems other than Linux, a link that leads out of
// dir is an error.
func OpenRooted(dir, name string) (*os.File, error) {
	if err := local(name); err != nil {
		return nil, err
	}
	return open(filepath.Join(dir, name), dir, name, rooted)
}

// follow tells which links below the trusted directory are followed.
type follow int

const (
	alone   follow = iota // there is no such directory: only the file itself must not be a link
	noLinks               // none: a link is an error
	links                 // links that do not lead out of the directory
	rooted                // all links, with the directory as the root
)

func local(name string) error {
	if !filepath.IsLocal(name) {
		return &fs.PathError{Op: "open", Path: name, Err: errors.New("want a relative path that does not lead out of the directory")}
	}
	return nil
}

func notRegular(path string, mode fs.FileMode) error {
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but of mode %v", ErrNotRegular, mode.Type())}
}

// ReadFile opens the file at path with [Open] and returns its content. If the file has more
// than limit bytes, it returns [ErrTooLarge] and no data.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadLinked reads a file like [ReadFile], but opens it with [OpenLinked].
func ReadLinked(path string, limit int64) ([]byte, error) {
	f, err := OpenLinked(path)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadIn reads a file like [ReadFile], but opens it with [OpenIn].
func ReadIn(dir, name string, limit int64) ([]byte, error) {
	f, err := OpenIn(dir, name)
	if err != nil {
		return nil, err
	}
	return readAndClose(f, limit)
}

// ReadWithin reads a file like [ReadFile], but opens it with [OpenWithin].
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

// Read returns the rest of f. If there are more than limit bytes, it returns [ErrTooLarge] and no
// data.
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

// Names returns the names of the entries of a directory, unsorted. It fails if dir is a
// link. If there are more than limit entries, it returns limit names and an [ErrTooMany].
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

// Entries returns the entries of a directory. It has the same limits and errors as [Names].
func Entries(dir string, limit int) ([]fs.DirEntry, error) {
	d, err := openDirectory(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return entriesOf(d, limit)
}

// LinkedEntries returns the entries of a directory like [Entries], but dir may be a link to a
// directory.
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
