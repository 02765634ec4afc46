package nodelog

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// dir is a directory whose files are read, and which nothing leads out of.
type dir string

// Open opens a file or a directory. Links lead where they do if that is below
// the directory, be they absolute or not.
func (d dir) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	base, err := filepath.EvalSymlinks(string(d))
	if err != nil {
		return fail(fs.ErrNotExist)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(base, filepath.FromSlash(name)))
	if err != nil {
		return fail(fs.ErrNotExist)
	}
	within, err := filepath.Rel(base, real)
	if err != nil || !filepath.IsLocal(within) {
		return fail(fs.ErrNotExist)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return fail(fs.ErrNotExist)
	}
	defer func() { _ = root.Close() }()
	// Whatever became of the path since, the root is not left; and a pipe
	// does not wait for its writer.
	f, err := root.OpenFile(within, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() && !fi.IsDir() {
		err = fmt.Errorf("%w: a %v", fs.ErrPermission, fi.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return fail(err)
	}
	return f, nil
}

// regular opens what a query names, which has to be a file.
func (d dir) regular(name string) (fs.File, error) {
	name = strings.ReplaceAll(name, `\`, "/")
	clean := strings.TrimPrefix(path.Clean(name), "/")
	if !filepath.IsLocal(filepath.FromSlash(clean)) {
		return nil, fmt.Errorf("query has the file %.64q; want one below the directory of logs", name)
	}
	f, err := d.Open(clean)
	if err != nil {
		return nil, fmt.Errorf("query has the file %.64q: %w", name, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("query has %.64q; want a file", name)
	}
	return f, nil
}
