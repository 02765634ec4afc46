package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockFilePause is the pause between two tries to lock a file.
const lockFilePause = 100 * time.Millisecond

// FileLock is a lock on a file that is shared by programs that may run the node, only one at a
// time. The program that has the lock can wait until another program opens the file (Wanted), and
// then stop and release the lock. Its methods may be called from any goroutine.
type FileLock struct {
	file, events *os.File
}

// LockFile locks (flock(2)) the file at path, which is created if it does not exist. If
// another process has the lock, LockFile waits for it until ctx ends. The lock is
// released by Release, or by the kernel when the process ends.
func LockFile(ctx context.Context, path string) (*FileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0o600) //nolint:forbidigo // the operator named it
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	if err := await(ctx, f); err != nil {
		return nil, fmt.Errorf("lock file %s: %w", path, errors.Join(err, f.Close()))
	}
	l := &FileLock{file: f}
	if l.events, err = openings(path); err != nil {
		l.Release()
		return nil, fmt.Errorf("lock file %s: %w", path, err)
	}
	return l, nil
}

// await tries to lock f every lockFilePause until ctx ends. It does not wait in
// flock(2), because that wait cannot be canceled.
func await(ctx context.Context, f *os.File) error {
	again := time.NewTicker(lockFilePause)
	defer again.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

// openings makes the kernel report opens of the file from now on.
func openings(path string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify") // not blocking: a deadline ends a Read
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return nil, errors.Join(os.NewSyscallError("inotify_add_watch", err), events.Close())
	}
	return events, nil
}

// Wanted waits until another program opens the file, and returns nil. If ctx ends
// before, it returns ctx's error. It may be called once.
func (l *FileLock) Wanted(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = l.events.SetReadDeadline(time.Unix(1, 0)) })()
	var event [unix.SizeofInotifyEvent + unix.NAME_MAX + 1]byte
	if _, err := l.events.Read(event[:]); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch lock file: %w", err)
	}
	return ctx.Err()
}

// Release releases the lock. Further calls do nothing.
func (l *FileLock) Release() {
	if l.events != nil {
		_ = l.events.Close()
	}
	_ = l.file.Close()
}
