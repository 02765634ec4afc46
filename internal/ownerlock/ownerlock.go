// Package ownerlock locks a file for a process, and records the process that holds
// the lock.
//
// The kernel releases a lock of flock(2) when the last descriptor of the file is
// closed. A child that a process forked just before its death has copies of the
// descriptors until it executes its own program. For this reason Take waits for the
// lock of a dead process.
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
	// patience limits the wait for the lock of a dead process: its child holds the lock until it
	// executes its own program, which takes milliseconds, and longer under load.
	patience = 10 * time.Second
	pause    = 5 * time.Millisecond
	// maxPID limits the bytes of a process ID and its newline.
	maxPID = 20
)

// HeldError means that another process holds the lock.
type HeldError struct {
	PID string // as the process has written it
}

func (e *HeldError) Error() string { return "in use by process " + e.PID }

// Take locks f for this process and writes the process ID to it. If a living
// process holds the lock, the error is *HeldError. The lock lasts until Release or
// the end of the process.
func Take(f *os.File) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
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

// Release releases the lock of f and closes f. Close alone is not enough: a child
// that was just forked holds the lock until it executes its own program.
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

// holder returns the holder of the lock, and whether it lives. A process that has
// not written its ID yet counts as living.
func holder(f *os.File) (pid string, lives bool) {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxPID))
	pid = strings.TrimSpace(string(b))
	n, err := strconv.Atoi(pid)
	return pid, err != nil || n <= 0 || !errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
