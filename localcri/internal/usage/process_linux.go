package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Process refers to a process, which need not be a child of this one. It has no
// goroutine.
type Process struct {
	pid int
	fd  *os.File // a pidfd, known to the poller
}

// ErrGone means that the process has ended and was reaped before it could be opened.
var ErrGone = errors.New("process is gone")

// OpenProcess opens a process. startTime is field 22 of its stat file (proc_pid_stat(5)), which
// differs in a later process with the same PID. If startTime is 0, any process with the PID is
// opened. If there is no such process, the error is [ErrGone].
func OpenProcess(pid int, startTime uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("%w: %d", ErrGone, pid)
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	p := &Process{pid, os.NewFile(uintptr(fd), "pidfd of "+strconv.Itoa(pid))}
	if startTime == 0 {
		return p, nil
	}
	st, err := p.stat()
	if errors.Is(err, kernel.ErrNoAnswer) {
		_ = p.Close()
		return nil, err
	}
	if err != nil || st.Start != startTime {
		_ = p.Close()
		return nil, fmt.Errorf("%w: %d", ErrGone, pid)
	}
	return p, nil
}

// PID returns the PID of the process.
func (p *Process) PID() int { return p.pid }

// Close closes the process's file, and ends a Wait.
func (p *Process) Close() error { return p.fd.Close() }

// Signal sends a signal. If the process has ended and was reaped, the error is [ErrGone].
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.control(func(fd int) error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %d", ErrGone, p.pid)
	}
	return err
}

func (p *Process) control(f func(fd int) error) error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Exit is how a process ended.
type Exit struct {
	// Known reports whether the exit code is known. Before Linux 6.15, it is unknown if the
	// process was reaped by another process than this one.
	Known bool
	// Code is the exit status, or 128 plus the signal that killed the process.
	Code int32
	// At is the time at which the end was detected.
	At time.Time
}

// reapPatience is how long Wait waits for the exit code of a process that has ended; it is
// available once the parent has reaped the process.
const reapPatience = 5 * time.Second

// Wait waits for the end of the process. Only one call at a time is allowed.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	if err := p.await(ctx, unix.POLLIN|unix.POLLHUP); err != nil {
		return Exit{}, err
	}
	out := Exit{At: time.Now()}
	// The exit code of a zombie is in its stat file; later only the pidfd has it.
	if st, err := p.stat(); err == nil && st.Ended() {
		out.Known, out.Code = true, code(st.Exit)
		return out, nil
	}
	if _, supported := p.info(); !supported {
		return out, nil
	}
	wait, cancel := context.WithTimeout(ctx, reapPatience)
	defer cancel()
	if err := p.await(wait, unix.POLLHUP); err != nil {
		return out, ctx.Err()
	}
	if info, _ := p.info(); info != nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
		out.Known, out.Code = true, code(info.Exit_code)
	}
	return out, nil
}

// await waits until the pidfd reports one of the events.
func (p *Process) await(ctx context.Context, events int16) error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	if err := p.fd.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0 && fds[0].Revents&events != 0
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// info returns the kernel's information about the process, even if it has ended (Linux 6.13; with
// the exit code since 6.15).
func (p *Process) info() (info *unix.PidfdInfo, supported bool) {
	i := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := p.control(func(fd int) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&i)))
		if errno != 0 {
			return errno
		}
		return nil
	})
	switch {
	case err == nil:
		return &i, true
	case errors.Is(err, unix.ESRCH): // it was reaped, and the kernel has no information any more
		return nil, true
	default:
		return nil, false
	}
}

// stat reads the stat file. If the pidfd is still valid afterwards, the file belongs to this
// process, and not to a later one with the same PID.
func (p *Process) stat() (kernel.Process, error) {
	out, err := kernel.This.Process(context.Background(), p.pid)
	if err != nil {
		return kernel.Process{}, err
	}
	return out, p.Signal(0)
}

// code converts a wait status to an exit code as in shells and the CRI.
func code(status int32) int32 {
	w := syscall.WaitStatus(status)
	if w.Signaled() {
		return 128 + int32(w.Signal())
	}
	return int32(w.ExitStatus())
}
