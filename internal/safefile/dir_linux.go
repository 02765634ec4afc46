package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openAs opens a regular file in the directory that was opened, even if another
// directory is at its path by now.
func (d *Dir) openAs(name string, mode int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return openHeld(path, held, mode)
}

// exists opens an entry with O_PATH and closes it.
func (d *Dir) exists(name string) error {
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err}
	}
	return unix.Close(held)
}

// atOnce opens an existing directory at any depth below dir with one system call,
// instead of several for each element. It returns nil in all other cases, such as a
// link on the way, a kernel without openat2 or a system without proc; reach then
// opens it step by step, and returns the error.
func atOnce(dir, name string) *Dir {
	base, err := ignoringEINTR(func() (int, error) {
		return unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(base) }()
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := ignoringEINTR(func() (int, error) { return openat2(base, name, &how) })
	if err != nil {
		return nil
	}
	d := &Dir{path: filepath.Join(dir, name), self: os.NewFile(uintptr(fd), filepath.Join(dir, name))}
	if d.root, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		_ = d.self.Close()
		return nil
	}
	return d
}

// heldBy opens the directory that root has open. A file from an [os.Root] calls
// lstat(2) for every entry of a list, so that Info does not follow a path. Entries
// of this package call it in Info: a list needs no call for each entry.
func heldBy(root *os.Root, path string) (*os.File, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// onlyName reports whether a file has only one hard link, so that a write to it changes
// no file at another path.
func onlyName(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 1
}
