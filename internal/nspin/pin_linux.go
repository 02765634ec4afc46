package nspin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Control calls f with a file's descriptor and returns f's results. In contrast to os.File.Fd, it does
// not set the file to blocking mode.
func Control(file *os.File, f func(fd int) (int, error)) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err2 := raw.Control(func(fd uintptr) { n, err = f(int(fd)) }); err2 != nil {
		return 0, err2
	}
	return n, err
}

var sharing sync.Mutex // allows one ShareDir of this process to mount at a time

// ShareDir creates a directory if necessary, and makes it a shared mount, as ip-netns(8)
// does. Mounts in the directory then also appear in mount namespaces that were created
// from this one.
func ShareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if !errors.Is(err, unix.EINVAL) { // EINVAL: dir is not a mount point
		return pathError("share", dir, err)
	}
	// A second mount of dir on itself would double all mounts below it, since the mount is shared.
	// The mutex prevents this within this process, the file lock between processes.
	sharing.Lock()
	defer sharing.Unlock()
	if err := share(); !errors.Is(err, unix.EINVAL) {
		return pathError("share", dir, err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// If another process holds the lock for 100 ms, mount without the lock: doubled mounts do no
	// harm.
	for range 50 {
		if !errors.Is(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			break
		}
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 2_000_000}, nil)
	}
	if err := share(); !errors.Is(err, unix.EINVAL) {
		return pathError("share", dir, err)
	}
	if err := unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return pathError("mount", dir, err)
	}
	return pathError("share", dir, share())
}

// MakePoint creates the mount point of a namespace: an empty file.
func MakePoint(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return pathError("create", path, err)
	}
	return pathError("close", path, unix.Close(fd))
}

// Bind mounts the namespace of an open file at path, and returns the namespace's ID. path must be
// an existing file; see [MakePoint].
func Bind(space *os.File, path string) (uint64, error) {
	var st unix.Stat_t
	_, err := Control(space, func(fd int) (int, error) {
		if err := unix.Fstat(fd, &st); err != nil {
			return 0, err
		}
		return 0, unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "none", unix.MS_BIND, "")
	})
	return st.Ino, pathError("mount", path, err)
}

// Open opens the file of a namespace. os.OpenFile would also register the file with Go's
// poller, which cannot poll it.
func Open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
