//go:build !linux

package safefile

import (
	"os"
	"path/filepath"
	"syscall"
)

// open opens a regular file for reading. It checks the file before and after the open.
func open(path, dir, name string, how follow) (*os.File, error) {
	return openAs(path, dir, name, how, os.O_RDONLY)
}

// openAs opens a regular file like open, for reading, writing or both.
func openAs(path, dir, name string, how follow, mode int) (*os.File, error) {
	if how == alone {
		dir, name = filepath.Split(path)
	}
	root, err := os.OpenRoot(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	look := root.Lstat
	if how == links || how == rooted {
		look = root.Stat
	}
	if how == noLinks {
		for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
			if info, err := root.Lstat(d); err != nil || !info.IsDir() {
				return nil, &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
			}
		}
	}
	before, err := look(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, notRegular(path, before.Mode())
	}
	f, err := root.OpenFile(name, mode|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(before, now) {
		_ = f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: syscall.EAGAIN}
	}
	return f, nil
}

// exists returns nil if name exists below dir.
func exists(dir, name string) error {
	in, err := OpenDir(dir, filepath.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	_, err = in.Lstat(filepath.Base(name))
	return err
}

// openDirectory opens a directory. If linked is true, path may be a link to a
// directory.
func openDirectory(path string, linked bool) (*os.File, error) {
	stat := os.Lstat
	if linked {
		stat = os.Stat
	}
	info, err := stat(path)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// OpenLinked opens the regular file at path for reading like [Open], but also follows a
// link at the end of the path. It is for paths in trusted directories.
func OpenLinked(path string) (*os.File, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return Open(resolved)
}
