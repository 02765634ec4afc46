package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrLocked means that another agent runs on the same root directory.
var ErrLocked = errors.New("root directory is in use by another agent")

// rootLock keeps a second agent away from a root directory. The kernel drops
// it with the process, however that ends, so it is never stale.
type rootLock struct{ f *os.File }

// lockRoot takes the lock of dir, which must exist. It does not wait.
func lockRoot(dir string) (*rootLock, error) {
	path := filepath.Join(dir, "agent.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock root directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			owner := make([]byte, 32)
			n, _ := f.ReadAt(owner, 0)
			return nil, fmt.Errorf("%s: %w (process %s)", dir, ErrLocked, strings.TrimSpace(string(owner[:n])))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Who holds it is for people to read; the lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return &rootLock{f: f}, nil
}

func (l *rootLock) release() { _ = l.f.Close() }
