package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/nodewright/nodewright/internal/ownerlock"
)

// ErrLocked means that another agent uses a directory.
var ErrLocked = errors.New("directory is in use by another agent")

// ErrReleased means that a lock has been released.
var ErrReleased = errors.New("lock was released")

// RootLockName is the name of the lock file in an agent's root directory. It stays when the agent ends.
const RootLockName = "agent.lock"

// DirLock excludes other agents from directories. The kernel releases it when the
// process ends in any way, so that it is never stale. Its methods may be called
// from any goroutine.
type DirLock struct {
	mu      sync.Mutex
	files   []*os.File
	holders int
}

// LockRoot locks dir, which must exist. It does not wait: if another agent has the
// lock, the error is [ErrLocked].
func LockRoot(dir string) (*DirLock, error) { return LockDirs(dir) }

// LockDirs locks the directories to which an agent and its helper programs write. They
// must exist. Either all of them are locked or none. Call it before any file in them is
// opened, and call Release after the last use. A directory may be named twice. It does
// not wait: if another agent has a lock, the error is [ErrLocked] with the directory
// and the process.
func LockDirs(dirs ...string) (*DirLock, error) {
	l := &DirLock{holders: 1}
	var seen []fs.FileInfo
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			l.Release()
			return nil, fmt.Errorf("lock directory: %w", err)
		}
		if slices.ContainsFunc(seen, func(s fs.FileInfo) bool { return os.SameFile(s, info) }) {
			continue
		}
		seen = append(seen, info)
		f, err := lock(dir)
		if err != nil {
			l.Release()
			return nil, err
		}
		l.files = append(l.files, f)
	}
	return l, nil
}

func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, RootLockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := take(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}

func take(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s has mode %v; want a regular file", RootLockName, info.Mode())
	}
	err = ownerlock.Take(f)
	var held *ownerlock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("%w (process %s)", ErrLocked, held.PID)
	}
	return err
}

// Hold keeps the lock until one more call of Release. The error is [ErrReleased] if the lock is
// released already.
func (l *DirLock) Hold() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == 0 {
		return ErrReleased
	}
	l.holders++
	return nil
}

// Release releases the lock at its first call. After calls of Hold, it needs one more call for
// each of them. Further calls do nothing.
func (l *DirLock) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holders == 0 {
		return
	}
	if l.holders--; l.holders > 0 {
		return
	}
	for _, f := range l.files {
		_ = ownerlock.Release(f)
	}
}
