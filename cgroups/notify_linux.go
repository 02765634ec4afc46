package cgroups

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifier waits for all signals in one goroutine, which is there, on a thread
// of its own, while there are signals. The runtime's poller cannot wait in its
// stead: it asks an epoll instance whether there is anything, which a PSI
// trigger answers once only, and then there is nothing left to fetch.
type notifier struct {
	mu      sync.Mutex
	poll    *poll
	signals map[int32]*signal // by descriptor
}

// poll is an epoll instance, and what ends the wait for it.
type poll struct{ epoll, quit int }

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
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return sync.OnceFunc(func() { n.remove(sig) }), nil
}

func (n *notifier) add(sig *signal, events uint32) error {
	if n.poll == nil {
		p, err := newPoll()
		if err != nil {
			return err
		}
		n.poll = p
		go n.run(p)
	}
	if err := n.poll.add(sig.fds[0], events); err != nil {
		n.release()
		return err
	}
	n.signals[int32(sig.fds[0])] = sig
	return nil
}

func (n *notifier) remove(sig *signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.signals, int32(sig.fds[0]))
	_ = unix.EpollCtl(n.poll.epoll, unix.EPOLL_CTL_DEL, sig.fds[0], nil) // closing it does as well
	sig.close()
	n.release()
}

// release ends the goroutine if there is nothing to wait for.
func (n *notifier) release() {
	if len(n.signals) == 0 {
		_, _ = unix.Write(n.poll.quit, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd with room takes it
		n.poll = nil
	}
}

// run wakes those that the kernel reports until it is told to quit.
func (n *notifier) run(p *poll) {
	defer p.close()
	events := make([]unix.EpollEvent, 32)
	for {
		count, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		n.mu.Lock()
		current := n.poll == p
		for _, ev := range events[:max(count, 0)] {
			if sig := n.signals[ev.Fd]; sig != nil && current {
				sig.wake()
			}
		}
		n.mu.Unlock()
		if !current {
			return
		}
	}
}

func newPoll() (*poll, error) {
	quit, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		_ = unix.Close(quit)
		return nil, err
	}
	p := &poll{epoll, quit}
	if err := p.add(quit, unix.EPOLLIN); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// add has the kernel tell of each event once.
func (p *poll) add(fd int, events uint32) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
}

func (p *poll) close() {
	_ = unix.Close(p.epoll)
	_ = unix.Close(p.quit)
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
