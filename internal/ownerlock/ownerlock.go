// Package ownerlock locks a file for a process, and knows which process has it.
//
// The kernel drops a lock of flock(2) with the last descriptor of its file. A child
// that a process made in the moment of its death has them all until it runs its own
// program: the lock of a dead process is waited for.
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
	// patience is how long the lock of a dead process is waited for. A child takes
	// milliseconds to its own program, and longer on a machine under load.
	patience = 10 * time.Second
	pause    = 5 * time.Millisecond
	// maxPID is how many bytes a process number and its newline have at most.
	maxPID = 20
)

// HeldError says that another process has the lock.
type HeldError struct {
	PID string // as that process wrote it
}

func (e *HeldError) Error() string { return "in use by process " + e.PID }

// Take locks f for this process, and writes its number there; a *HeldError if a
// process that lives has the lock. The lock lasts until Release, or the process's end.
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

// Release gives the lock of f back and closes f. To close it is not enough: a child
// that was made in this moment has the lock until it runs its own program.
func Release(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// Check returns a *HeldError if a process that lives has the lock, and takes nothing. f
// may be open for reading alone.
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

// holder reads who has the lock, and whether that process lives. One that has not
// written its number yet does.
func holder(f *os.File) (pid string, lives bool) {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, maxPID))
	pid = strings.TrimSpace(string(b))
	n, err := strconv.Atoi(pid)
	return pid, err != nil || n <= 0 || !errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}
