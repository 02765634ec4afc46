package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openAs opens a regular file in the open directory, even if the directory's path leads to
// another one by now.
func (d *Dir) openAs(name string, mode int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return openHeld(path, held, mode)
}

// exists returns nil if name exists, or the error of opening it with O_PATH.
func (d *Dir) exists(name string) error {
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err}
	}
	return unix.Close(held)
}

// atOnce opens an existing directory at any depth below dir with one call of openat2,
// instead of several calls for each element. If this is not possible, for example because
// of a link on the path, a kernel without openat2 or a system without /proc, it returns
// nil. reach then opens the directory step by step, and returns the error.
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

// heldBy returns a file for the directory that root has open. A directory that an
// [os.Root] opens calls lstat(2) for each entry that ReadDir returns. The file that heldBy
// returns does not: [Dir.Entries] calls lstat(2) only in an entry's method Info.
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

// onlyName reports whether a file has only one hard link. A write to the file then changes
// no file at another path.
func onlyName(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 1
}
