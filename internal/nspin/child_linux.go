package nspin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childTimeout limits the time in which a child creates its namespaces, if the context has
// no deadline.
const childTimeout = 10 * time.Second

// Child is a process in new namespaces. It makes only the system calls that create the
// namespaces, and executes no other program.
type Child struct {
	pid  int
	sock *os.File // the child exits when sock is closed, as at the exit of this process
}

// StartChild starts a child that enters the user namespace owner, unless owner is nil, and
// then creates the namespaces in flags (CLONE_NEW constants). It returns when the
// namespaces exist. A child is necessary because only a process with a single thread may
// enter or create a user namespace. The caller has to call End.
func StartChild(ctx context.Context, owner *os.File, flags int) (*Child, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(childTimeout)
	}
	_ = ours.SetReadDeadline(deadline)
	var pid int
	if owner == nil {
		pid, err = fork(theirs, theirs, flags)
	} else {
		pid, err = Control(owner, func(fd int) (int, error) { return fork(fd, theirs, flags) })
	}
	_ = unix.Close(theirs)
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("start child in namespaces: %w", err)
	}
	c := &Child{pid, ours}
	var report [4]byte
	if _, err := io.ReadFull(ours, report[:]); err != nil {
		c.End()
		return nil, fmt.Errorf("child in namespaces: %w", err)
	}
	if errno := unix.Errno(binary.NativeEndian.Uint32(report[:])); errno != 0 {
		c.End()
		return nil, fmt.Errorf("child in namespaces: %w", errno)
	}
	return c, nil
}

// PID returns the child's process ID. The kernel does not reuse it before End.
func (c *Child) PID() int { return c.pid }

// Open opens a namespace of the child by its name in /proc/PID/ns, such as net.
func (c *Child) Open(name string) (*os.File, error) {
	return Open(fmt.Sprintf("/proc/%d/ns/%s", c.pid, name))
}

// End kills the child and waits for its exit.
func (c *Child) End() {
	_ = c.sock.Close()
	_ = unix.Kill(c.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(c.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// socketPair returns the two ends of a socket pair: a file that supports deadlines, and a
// descriptor for the child.
func socketPair() (ours *os.File, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
		return nil, -1, err
	}
	return os.NewFile(uintptr(pair[0]), "child in namespaces"), pair[1], nil
}

// fork starts the child with all signals blocked, since Go's signal handlers must not run
// in the child. If owner equals sock, the child enters no user namespace.
func fork(owner, sock, flags int) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, err
	}
	pid, errno := child(uintptr(owner), uintptr(sock), uintptr(min(owner, sock)), uintptr(max(owner, sock)), uintptr(flags))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

// child forks, and returns only in the parent. The child has a copy of the memory and one
// thread, without Go's scheduler. It must not grow its stack, allocate, take a lock or
// call the race detector: it makes only raw system calls. It closes inherited descriptors,
// enters the user namespace, creates the other namespaces and writes the result to sock.
// It exits when the other end of sock is closed, as at the exit of the parent.
//
//go:norace
//go:nosplit
//go:noinline
func child(owner, sock, low, high, flags uintptr) (uintptr, unix.Errno) {
	var clone, stack uintptr = uintptr(unix.SIGCHLD), 0
	if runtime.GOARCH == "s390x" { // clone(2) has a different order of arguments there
		clone, stack = stack, clone
	}
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, clone, stack, 0, 0, 0, 0)
	if pid != 0 || errno != 0 {
		return pid, errno
	}
	if low > 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOSE_RANGE, 0, low-1, 0)
	}
	if low+1 < high {
		_, _, _ = unix.RawSyscall(unix.SYS_CLOSE_RANGE, low+1, high-1, 0)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE_RANGE, high+1, 1<<31-1, 0)
	if owner != sock {
		_, _, errno = unix.RawSyscall(unix.SYS_SETNS, owner, unix.CLONE_NEWUSER, 0)
	}
	if errno == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_UNSHARE, flags, 0, 0)
	}
	report := uint32(errno)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, sock, uintptr(unsafe.Pointer(&report)), 4)
	_, _, _ = unix.RawSyscall(unix.SYS_READ, sock, uintptr(unsafe.Pointer(&report)), 4)
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}
