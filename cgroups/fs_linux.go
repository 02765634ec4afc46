package cgroups

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

// What the kernel says of a file whose cgroup went, and of the processes of a
// threaded cgroup.
const (
	errNoDevice     = syscall.ENODEV
	errNotSupported = syscall.EOPNOTSUPP
)

// osFS is the machine's own file system.
type osFS struct{}

// Read reads most files at once: they are shorter than the buffer.
func (osFS) Read(path string) ([]byte, error) {
	out, err := kernelfile.Read(path, 512, kernelfile.Longest)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return out, nil
}

// Write opens without O_CREATE or O_TRUNC: the files of a cgroup are the
// kernel's, and a missing one has to be an error.
func (osFS) Write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	// A short write does not happen: the kernel takes the value or refuses it.
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

// Mkdir makes one directory; a missing parent is fs.ErrNotExist, by which the
// driver notices it.
func (osFS) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

// Rmdir does not try to unlink a file first, as os.Remove does: one system call
// for a cgroup that can be removed.
func (osFS) Rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// Dirs leaves out files, which are most of what a cgroup has.
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

// kill sends SIGKILL to a process. A process that has ended is no error.
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}
