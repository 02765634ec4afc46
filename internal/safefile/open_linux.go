package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// open opens a regular file for reading. It first opens the file with O_PATH to check its type.
func open(path, dir, name string, how follow) (*os.File, error) {
	return openAs(path, dir, name, how, os.O_RDONLY)
}

// openAs opens a regular file like open, for reading, writing or both.
func openAs(path, dir, name string, how follow, mode int) (*os.File, error) {
	held, err := hold(dir, name, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return openHeld(path, held, mode)
}

// OpenLinked opens the regular file at path for reading like [Open], but also follows a
// link at the end of the path. It is for paths in trusted directories. It also returns
// [ErrNotRegular] for a file that the kernel generates, such as a file in /proc.
func OpenLinked(path string) (*os.File, error) {
	held, err := openLinked(path)
	if err != nil {
		return nil, err
	}
	return openHeld(path, held, os.O_RDONLY)
}

// openHeld opens the file of the O_PATH descriptor held, and closes held. It returns
// ErrNotRegular if the file is not regular.
func openHeld(path string, held, mode int) (*os.File, error) {
	defer func() { _ = unix.Close(held) }()
	var st unix.Stat_t
	if err := unix.Fstat(held, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, notRegular(path, modeOf(st.Mode))
	}
	// Without O_NONBLOCK, open would wait while another process has a lease on the file.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(fmt.Sprintf("/proc/self/fd/%d", held), mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openat2 is the system call. Tests replace it.
var openat2 = unix.Openat2

// hold returns an O_PATH descriptor of the file name below dir, or of dir itself if how equals
// alone. The file itself is not opened.
func hold(dir, name string, how follow) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if how == alone {
		return ignoringEINTR(func() (int, error) { return unix.Open(dir, flags, 0) })
	}
	root, err := ignoringEINTR(func() (int, error) {
		return unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(root) }()
	return holdBelow(root, name, how)
}

// holdBelow returns an O_PATH descriptor of the file name below the open directory root.
func holdBelow(root int, name string, how follow) (int, error) {
	open := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	switch how {
	case noLinks:
		open.Flags |= unix.O_NOFOLLOW
		open.Resolve |= unix.RESOLVE_NO_SYMLINKS
	case rooted:
		open.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	}
	for range 100 { // openat2 returns EAGAIN if a file is renamed at the same time
		fd, err := ignoringEINTR(func() (int, error) { return openat2(root, name, &open) })
		switch {
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			// Linux before 5.6, or a seccomp filter that does not allow openat2.
			return step(root, name, how)
		case !errors.Is(err, unix.EAGAIN):
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// exists returns nil if name exists below dir, or the error of opening it with O_PATH.
func exists(dir, name string) error {
	held, err := hold(dir, name, noLinks)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(dir, name), Err: err}
	}
	return unix.Close(held)
}

// openDirectory opens a directory. If linked is true, path may be a link to a
// directory.
func openDirectory(path string, linked bool) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !linked {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, flags, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if fd, err := call(); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// modeOf converts the file type in a mode of stat(2) to a fs.FileMode.
func modeOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	default:
		return 0
	}
}
