package cgroups

import (
	"fmt"
	"io/fs"
	"os"
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

func (osFS) Read(path string) ([]byte, error) { return os.ReadFile(path) }

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
