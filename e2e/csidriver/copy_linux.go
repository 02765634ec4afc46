package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
)

// Limits of a copy. A pod may change the tree during the copy.
const (
	maxFiles = 1_000_000
	maxDepth = 200
	chunk    = 1 << 20
)

var errTooMuch = fmt.Errorf("more than %d files, or %d levels of directories", maxFiles, maxDepth)

// copyTree copies the files below the directory source into the directory target, which exists
// and belongs to the driver. Directories, regular files and symbolic links keep their modes and
// owners. Pipes, sockets and devices hold no data: they are left out.
func copyTree(ctx context.Context, source, target string) error {
	w, err := dirwalk.Open(source)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := likeDir(w.Fd(), target); err != nil {
		return err
	}
	for files, at := 0, target; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		event, err := w.Next()
		switch event {
		case dirwalk.Entry:
			if files++; files > maxFiles || w.Depth() > maxDepth {
				return errTooMuch
			}
			path := filepath.Join(at, w.Name())
			entered, err := copyEntry(ctx, w, path)
			if err != nil {
				return err
			}
			if entered {
				at = path
			}
		case dirwalk.End:
			if err != nil {
				return w.Fail("read", "", err)
			}
		case dirwalk.Back:
			at = filepath.Dir(at)
		case dirwalk.Lost:
			return errors.New("a directory was moved while it was copied")
		case dirwalk.Done:
			return syncFS(target)
		}
	}
}

// copyEntry copies the current entry of the walk. If the entry is a directory, it
// enters it.
func copyEntry(ctx context.Context, w *dirwalk.Walk, target string) (entered bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(w.Fd(), w.Name(), &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil // deleted during the copy
	}
	if err != nil {
		return false, w.Fail("stat", w.Name(), err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := w.Enter(); err != nil {
			return false, w.Fail("open", w.Name(), err)
		}
		if err := os.Mkdir(target, 0o700); err != nil {
			return true, err
		}
		return true, likeDir(w.Fd(), target)
	case unix.S_IFLNK:
		link := make([]byte, maxPath)
		n, err := unix.Readlinkat(w.Fd(), w.Name(), link)
		if err != nil {
			return false, w.Fail("readlink", w.Name(), err)
		}
		return false, errors.Join(os.Symlink(string(link[:n]), target), os.Lchown(target, int(st.Uid), int(st.Gid)))
	case unix.S_IFREG:
		fd, err := unix.Openat(w.Fd(), w.Name(), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return false, w.Fail("open", w.Name(), err)
		}
		f := os.NewFile(uintptr(fd), w.Name())
		defer func() { _ = f.Close() }()
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return false, errors.Join(w.Fail("open", w.Name(), errors.New("no regular file any more")), err)
		}
		if err := copyFile(ctx, f, target, st.Size); err != nil {
			return false, err
		}
		return false, like(&st, target)
	}
	return false, nil
}

// likeDir gives the directory at path the mode and the owner of the directory fd.
func likeDir(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	return like(&st, path)
}

// like sets the mode and the owner of a file of the driver to those in st.
func like(st *unix.Stat_t, path string) error {
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Chmod(path, st.Mode&0o7777); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	return nil
}

// copyImage copies an image. The copy has size bytes, and is sparse where the image is.
func copyImage(ctx context.Context, source, target string, size int64) error {
	f, err := os.OpenFile(source, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := copyFile(ctx, f, target, info.Size()); err != nil {
		return err
	}
	if err := os.Truncate(target, max(size, info.Size())); err != nil {
		return err
	}
	return syncFS(filepath.Dir(target))
}

// syncFS syncs a file system, so that all written data survives a power failure.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// copyFile creates a file with the first size bytes of f. It shares the blocks of f if
// the file system can. Otherwise it copies the data and leaves out the holes.
func copyFile(ctx context.Context, f *os.File, target string, size int64) (err error) {
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if unix.IoctlFileClone(int(out.Fd()), int(f.Fd())) == nil {
		return out.Truncate(size)
	}
	for at := int64(0); at < size; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // the rest is a hole
			break
		}
		end := size
		if err == nil {
			if end, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
				return err
			}
			end = min(end, size)
		} else {
			data = at // a file system without SEEK_DATA
		}
		for at = data; at < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := io.Copy(io.NewOffsetWriter(out, at), io.NewSectionReader(f, at, min(chunk, end-at)))
			if err != nil {
				return err
			}
			if n == 0 { // it was made shorter meanwhile
				return out.Truncate(size)
			}
			at += n
		}
	}
	return out.Truncate(size)
}
