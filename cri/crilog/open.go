package crilog

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// openRegular opens a regular file for reading. If root is not "", path has to
// be in it and no symbolic link may lead out of it.
func openRegular(root, path string) (*os.File, error) {
	f, err := open(root, path)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("log %s is a %v; want a regular file", path, fi.Mode().Type())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// open does not wait for a pipe's writer.
func open(root, path string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	if root == "" {
		return os.OpenFile(path, flags, 0)
	}
	within, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(within) {
		return nil, fmt.Errorf("log %s is not in %s", path, root)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return r.OpenFile(within, flags, 0)
}
