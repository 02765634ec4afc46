package nspin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Control calls f with a file's descriptor. It does not change whether the file blocks.
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

var sharing sync.Mutex

// ShareDir makes a directory a shared mount, as ip-netns(8) does: mounts in it
// appear in mount namespaces that were created from this one.
func ShareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if !errors.Is(err, unix.EINVAL) { // it is a mount already
		return pathError("share", dir, err)
	}
	// Since the mount is shared, mounting it once more doubles all mounts below it. Within this
	// process only one goroutine does it at a time.
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
	// If another process holds the lock too long, go on without it: a second mount does no harm.
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

// Bind mounts a namespace at path, and returns its ID.
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

// Open opens a file of nsfs. os.OpenFile would also register it with the poller,
// which cannot poll it.
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
