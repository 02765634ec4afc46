package kernel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// Files are the files of one kernel file system, such as /proc. Names are as in io/fs. Methods return
// ErrAbsent for a missing file, ErrGone if the file's process or cgroup ends during the call,
// ErrTooLong above the limit, or the error of a system call.
type Files interface {
	// Read returns the content of a file of at most limit bytes.
	Read(name string, limit int) ([]byte, error)
	// Dirs returns the names of the directories in a directory of at most limit entries.
	Dirs(name string, limit int) ([]string, error)
	// Link returns the target of a symbolic link.
	Link(name string) (string, error)
}

// Of returns the Files of an io/fs file system. It returns nil if f is nil.
func Of(f fs.FS) Files {
	switch f := f.(type) {
	case nil:
		return nil
	case Files:
		return f
	default:
		return ioFiles{f}
	}
}

type ioFiles struct{ fs.FS }

func (f ioFiles) Read(name string, limit int) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = file.Close() }()
	b, err := io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if err != nil {
		return nil, classify(err)
	}
	return bounded(name, b, limit)
}

// Reads returns a function with the limit and the errors of [Files.Read]. whole reads a whole file
// and returns the errors of system calls.
func Reads(whole func(name string) ([]byte, error)) func(name string, limit int) ([]byte, error) {
	return func(name string, limit int) ([]byte, error) {
		b, err := whole(name)
		if err != nil {
			return nil, classify(err)
		}
		return bounded(name, b, limit)
	}
}

func bounded(name string, b []byte, most int) ([]byte, error) {
	if len(b) > most {
		return nil, fmt.Errorf("read %s: %w of %d bytes", name, ErrTooLong, most)
	}
	return b, nil
}

func (f ioFiles) Dirs(name string, limit int) ([]string, error) {
	dir, err := f.Open(name)
	if err != nil {
		return nil, classify(err)
	}
	defer func() { _ = dir.Close() }()
	list, ok := dir.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: syscall.ENOTDIR}
	}
	entries, err := list.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, classify(err)
	}
	if len(entries) > limit {
		return nil, fmt.Errorf("list %s: %w of %d names", name, ErrTooLong, limit)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

func (f ioFiles) Link(name string) (string, error) {
	target, err := fs.ReadLink(f.FS, name)
	return target, classify(err)
}

// below implements Files for the files below a directory.
type below struct {
	Files
	dir string
}

func (b below) Read(name string, limit int) ([]byte, error) {
	return b.Files.Read(path.Join(b.dir, name), limit)
}
func (b below) Dirs(name string, limit int) ([]string, error) {
	return b.Files.Dirs(path.Join(b.dir, name), limit)
}
func (b below) Link(name string) (string, error) { return b.Files.Link(path.Join(b.dir, name)) }

// readError wraps both a meaning, such as ErrAbsent, and the error of a system call. Its text is the
// text of the system call's error.
type readError struct{ meaning, err error }

func (e *readError) Error() string   { return e.err.Error() }
func (e *readError) Unwrap() []error { return []error{e.meaning, e.err} }

// classify wraps an error of a system call with its meaning, such as ErrAbsent or ErrGone.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EOPNOTSUPP): // the latter if PSI is disabled
		return &readError{ErrAbsent, err}
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ESRCH):
		return &readError{ErrGone, err}
	}
	return err
}
