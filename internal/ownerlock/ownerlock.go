// Package ownerlock locks a file for a process, and records the process that holds
// the lock.
//
// The kernel releases a lock of flock(2) when all copies of the file's descriptor are
// closed. If a process dies just after a fork, its child has copies of the descriptors
// until the child executes a program. Therefore Take waits for a lock whose owner is
// dead.
package ownerlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// lockTimeout limits the wait for the lock of a dead process. A child of that process holds the
	// lock until it executes a program, which takes milliseconds, and longer under load.
	lockTimeout = 10 * time.Second
	pause       = 5 * time.Millisecond
	// maxPID limits the bytes of a process ID and its newline.
	maxPID = 20
)

// HeldError means that another process holds the lock.
type HeldError struct {
	PID string // process ID; "" if the process has not written it yet
}

func (e *HeldError) Error() string { return "in use by process " + e.PID }

// Take locks f for this process and writes the process ID to f. It returns a *HeldError if
// a living process holds the lock, or if the lock of a dead process is not released within
// 10 s. The lock lasts until Release or the end of the process.
func Take(f *os.File) error {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		if pid, lives := holder(f); lives || time.Now().After(deadline) {
			return &HeldError{PID: pid}
		}
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// Release releases the lock of f and closes f. Close alone is not enough: a child that was
// just forked would hold the lock until it executes a program.
func Release(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// Check returns a *HeldError if a living process holds the lock. It does not take
// the lock; f may be read-only.
func Check(f *os.File) error {
	fd := int(f.Fd())
	if err := syscall.Flock(fd, syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return syscall.Flock(fd, syscall.LOCK_UN)
	}
	if pid, lives := holder(f); lives {
		return &HeldError{PID: pid}
	}
	return nil
}

// holder returns the process ID in the file f, and whether that process lives. A process
// that has not written its ID yet counts as living.
func holder(f *os.File) (pid string, lives bool) {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxPID))
	pid = strings.TrimSpace(string(b))
	n, err := strconv.Atoi(pid)
	return pid, err != nil || n <= 0 || !errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
