package cgroups

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

// Errors of the kernel: for a file whose cgroup was removed, and for the list of processes of a
// threaded cgroup.
const (
	errNoDevice     = syscall.ENODEV
	errNotSupported = syscall.EOPNOTSUPP
)

// osFS is the machine's own file system.
type osFS struct{}

// Read returns the content of a file. Most files are shorter than its buffer, so that one system
// call reads them.
func (osFS) Read(path string) ([]byte, error) {
	out, err := kernelfile.Read(path, 512, kernelfile.Longest)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return out, nil
}

// Write opens the file without O_CREATE and O_TRUNC: the kernel makes the files of a cgroup, and a
// missing file has to be an error.
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

// Mkdir makes one directory. If the parent is missing, the error is fs.ErrNotExist; the driver
// relies on that.
func (osFS) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

// Rmdir removes a directory with one system call. os.Remove would first try to unlink a file.
func (osFS) Rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &fs.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// Dirs returns the names of the directories in a directory. It leaves out files, which are most
// entries of a cgroup.
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

// kill sends SIGKILL to a process. It is not an error if a process has ended.
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}

// inUserNamespace reports whether this process is in a user namespace other than the first.
func inUserNamespace() bool { return userns.RunningInUserNS() }
