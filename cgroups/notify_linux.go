package cgroups

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifier waits for all signals in one goroutine, which takes no thread while
// it waits: an epoll instance is itself waited for by the runtime. The
// goroutine is there while there are signals.
type notifier struct {
	mu      sync.Mutex
	epoll   *os.File
	signals map[int32]*signal // by descriptor
}

type signal struct {
	wake func()
	fds  []int // the first is waited for
}

func newNotifier() *notifier { return &notifier{signals: map[int32]*signal{}} }

// Notify implements Notifier.
func (n *notifier) Notify(s Signal, wake func()) (stop func(), err error) {
	sig, events, err := open(s)
	if err != nil {
		return nil, err
	}
	sig.wake = wake
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.add(sig, events); err != nil {
		sig.close()
		return nil, err
	}
	return sync.OnceFunc(func() { n.remove(sig) }), nil
}

func (n *notifier) add(sig *signal, events uint32) error {
	if n.epoll == nil {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		if err := unix.SetNonblock(fd, true); err != nil { // for os.File to wait without a thread
			_ = unix.Close(fd)
			return fmt.Errorf("epoll: %w", err)
		}
		n.epoll = os.NewFile(uintptr(fd), "epoll")
	}
	fd := sig.fds[0]
	err := n.control(unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
	if err != nil {
		n.release()
		return fmt.Errorf("epoll: %w", err)
	}
	n.signals[int32(fd)] = sig
	if len(n.signals) == 1 {
		go n.run(n.epoll)
	}
	return nil
}

func (n *notifier) remove(sig *signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fd := sig.fds[0]
	_ = n.control(unix.EPOLL_CTL_DEL, fd, nil) // closing it does as well
	delete(n.signals, int32(fd))
	sig.close()
	n.release()
}

// release ends the goroutine if there is nothing to wait for.
func (n *notifier) release() {
	if len(n.signals) == 0 && n.epoll != nil {
		_ = n.epoll.Close()
		n.epoll = nil
	}
}

func (n *notifier) control(op, fd int, ev *unix.EpollEvent) error {
	conn, err := n.epoll.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(epfd uintptr) { failed = unix.EpollCtl(int(epfd), op, fd, ev) })
	return errors.Join(err, failed)
}

// run wakes those that the kernel tells of until the file is closed.
func (n *notifier) run(epoll *os.File) {
	conn, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 32)
	for {
		var count int
		err := conn.Read(func(fd uintptr) bool {
			var err error
			count, err = unix.EpollWait(int(fd), events, 0)
			return count > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		n.mu.Lock()
		for _, ev := range events[:max(count, 0)] {
			if sig := n.signals[ev.Fd]; sig != nil && n.epoll == epoll {
				sig.wake()
			}
		}
		n.mu.Unlock()
	}
}

func (s *signal) close() {
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// open asks the kernel for a signal, and says by which events of epoll it
// comes.
func open(s Signal) (*signal, uint32, error) {
	mode := unix.O_RDONLY
	if s.Arg != "" && s.Control == "" {
		mode = unix.O_RDWR
	}
	fd, err := unix.Open(s.File, mode|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, &os.PathError{Op: "open", Path: s.File, Err: err}
	}
	if s.Control != "" {
		return openV1(s, fd)
	}
	if s.Arg != "" {
		// The kernel takes it with its terminating zero.
		if _, err := unix.Write(fd, append([]byte(s.Arg), 0)); err != nil {
			_ = unix.Close(fd)
			return nil, 0, &os.PathError{Op: "write " + s.Arg + " to", Path: s.File, Err: err}
		}
		return &signal{fds: []int{fd}}, unix.EPOLLPRI, nil
	}
	// What was before is not told: reading makes it known.
	if _, err := unix.Read(fd, make([]byte, 4096)); err != nil && !errors.Is(err, syscall.EAGAIN) {
		_ = unix.Close(fd)
		return nil, 0, &os.PathError{Op: "read", Path: s.File, Err: err}
	}
	return &signal{fds: []int{fd}}, unix.EPOLLPRI, nil
}

// openV1 has the kernel count into an eventfd.
func openV1(s Signal, fd int) (*signal, uint32, error) {
	count, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, 0, fmt.Errorf("eventfd: %w", err)
	}
	sig := &signal{fds: []int{count, fd}}
	line := fmt.Sprintf("%d %d %s", count, fd, s.Arg)
	if err := (osFS{}).Write(s.Control, line); err != nil {
		sig.close()
		return nil, 0, err
	}
	return sig, unix.EPOLLIN, nil
}
