package safefile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openAs opens a regular file of the held directory, whatever is at its path.
func (d *Dir) openAs(name string, mode int) (*os.File, error) {
	path := filepath.Join(d.path, name)
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return openHeld(path, held, mode)
}

// exists takes hold of what there is, and lets go of it.
func (d *Dir) exists(name string) error {
	held, err := holdBelow(int(d.self.Fd()), name, noLinks)
	if err != nil {
		return &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err}
	}
	return unix.Close(held)
}

// atOnce holds a directory that is there, however deep below dir, with one look instead of
// several at each element on the way. It returns nil for all else, such as
// a link on the way, a kernel without openat2 or a system without proc: reach goes step by
// step then, and has the error.
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

// heldBy opens the directory that root holds. A file that was opened in an [os.Root] looks
// at every entry when it is listed, lest their Info follow a path; entries look
// by themselves here, so that listing costs no call for each of them.
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

// onlyName reports whether a file has one name alone: a write to it changes
// nothing elsewhere.
func onlyName(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 1
}
