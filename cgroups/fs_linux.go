package cgroups

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the kernel says of a file whose cgroup went, and of the processes of a
// threaded cgroup.
const (
	errNoDevice     = syscall.ENODEV
	errNotSupported = syscall.EOPNOTSUPP
)

// osFS is the machine's own file system.
type osFS struct{}

// Read does what os.ReadFile does, without asking for a file's size, which is
// not told here, and for the runtime's poller.
func (osFS) Read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	out := make([]byte, 0, 512)
	for {
		n, err := unix.Read(fd, out[len(out):cap(out)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return out, nil
		}
		if out = out[:len(out)+n]; len(out) == cap(out) {
			out = slices.Grow(out, cap(out))
		}
	}
}

func (osFS) Write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		_, err = unix.Write(fd, []byte(value))
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func (osFS) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (osFS) Rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

func (osFS) Dirs(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// kill ends a process, whatever it does. One that has ended already is no
// error.
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}
