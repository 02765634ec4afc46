package cgroups

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifier waits for all signals in one goroutine with a thread of its own, which exists while
// there are signals. Go's poller cannot be used, since it first asks epoll whether there is an
// event. A PSI trigger reports each event once: to that question, and not to the wait that
// follows.
type notifier struct {
	// mu guards all fields and the closing of descriptors: the kernel reuses their
	// numbers at once. It is held while wake is called.
	mu sync.Mutex
	// poll is nil while there are no signals. There is no goroutine then.
	poll    *poll
	signals map[int32]*signal // by descriptor
}

// poll is an epoll instance, and an eventfd that ends the wait for it. The
// goroutine that waits owns both, and closes them when it ends.
type poll struct{ epoll, quit int }

// signal is a signal that a call of Notify waits for, until its stop is called.
type signal struct {
	wake func()
	// fds has the descriptor that epoll waits for, and on v1 in addition the file about which the
	// eventfd reports, which has to stay open.
	fds []int // epoll waits for the first one
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

// add starts the goroutine if there is none, and registers sig with epoll. mu is
// held.
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
		// Releases the poll if sig would have been its first signal.
		n.release()
		return err
	}
	n.signals[int32(sig.fds[0])] = sig
	return nil
}

// remove stops waiting for sig and closes its descriptors. After it returns,
// wake is neither running nor called again.
func (n *notifier) remove(sig *signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.signals, int32(sig.fds[0]))
	_ = unix.EpollCtl(n.poll.epoll, unix.EPOLL_CTL_DEL, sig.fds[0], nil) // closing it does as well
	sig.close()
	n.release()
}

// release ends the goroutine if there are no signals. mu is held. It does not wait
// for the end: the next Notify starts another goroutine with a poll of its own.
func (n *notifier) release() {
	if len(n.signals) == 0 {
		_, _ = unix.Write(n.poll.quit, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd with room takes it
		n.poll = nil
	}
}

// run calls wake for the signals that the kernel reports, until it reads from quit.
// It blocks a thread in epoll_wait.
func (n *notifier) run(p *poll) {
	defer p.close()
	events := make([]unix.EpollEvent, 32)
	for {
		// Other errors mean that the instance is unusable; no signal would be
		// reported again in either case.
		count, err := unix.EpollWait(p.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		n.mu.Lock()
		// Descriptors are looked up under mu. One that was closed since the wait is
		// not in the map, or belongs to another signal, which is then woken
		// needlessly.
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

// newPoll creates the epoll instance with its eventfd registered, so that a
// goroutine can always be ended. On failure nothing stays open.
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

// add makes the kernel report each event once (EPOLLET): nothing reads the files to
// clear them, and a level trigger would wake the loop without end.
func (p *poll) add(fd int, events uint32) error {
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
}

func (p *poll) close() {
	_ = unix.Close(p.epoll)
	_ = unix.Close(p.quit)
}

// close closes the descriptors, which also removes a trigger: the kernel keeps it
// only while its file is open.
func (s *signal) close() {
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// open registers a signal with the kernel and returns the epoll events by which it
// is reported. The first descriptor of the signal is the one to wait for.
func open(s Signal) (*signal, uint32, error) {
	mode := unix.O_RDONLY
	// A trigger is written to the file that reports it; the others are only read.
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
		// The kernel expects the terminating zero.
		if _, err := unix.Write(fd, append([]byte(s.Arg), 0)); err != nil {
			_ = unix.Close(fd)
			return nil, 0, &os.PathError{Op: "write " + s.Arg + " to", Path: s.File, Err: err}
		}
		return &signal{fds: []int{fd}}, unix.EPOLLPRI, nil
	}
	// Earlier events are not reported: a read clears them.
	if _, err := unix.Read(fd, make([]byte, 4096)); err != nil && !errors.Is(err, syscall.EAGAIN) {
		_ = unix.Close(fd)
		return nil, 0, &os.PathError{Op: "read", Path: s.File, Err: err}
	}
	return &signal{fds: []int{fd}}, unix.EPOLLPRI, nil
}

// openV1 registers an eventfd with the kernel (cgroup-v1/memory, "Memory
// thresholds" and "OOM Control"). It owns fd, and closes it on failure.
func openV1(s Signal, fd int) (*signal, uint32, error) {
	count, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(fd)
		return nil, 0, fmt.Errorf("eventfd: %w", err)
	}
	sig := &signal{fds: []int{count, fd}}
	// The line is "<eventfd> <descriptor of the file> <argument>".
	line := fmt.Sprintf("%d %d %s", count, fd, s.Arg)
	if err := (osFS{}).Write(s.Control, line); err != nil {
		sig.close()
		return nil, 0, err
	}
	return sig, unix.EPOLLIN, nil
}
