//go:build linux

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// loop is the monitor: one goroutine that owns everything except the streams of containers. Each
// container's streams belong to its pump, so that a hanging disk blocks only a log.
type loop struct {
	poll poller

	mu   sync.Mutex
	mail []func() // guarded by mu
	read []func() // the previous mail, for reuse
	bell int      // eventfd that signals new mail

	door       *watch // the listening socket
	timers     []*timer
	conns      []*conn // the newest last
	containers map[string]*container
	processes  map[uint64]*process
	children   map[int]func(death)
	orphans    orphans
	handles    uint64
	buffers    buffers
	receive    []byte

	oomScore int // of this process: oom_score_adj, or -1
	env      []string

	null int // /dev/null

	yield  atomic.Bool // a pump has work
	ending bool        // SIGTERM was received: the monitor ends after the last container
	over   bool

	garbage atomic.Int64 // approximate bytes that were allocated since the last garbage collection
}

func newLoop() (*loop, error) {
	l := &loop{
		containers: map[string]*container{}, processes: map[uint64]*process{}, children: map[int]func(death){},
		env: environment(), receive: make([]byte, receiveSize),
	}
	var err error
	if l.poll.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	l.poll.watches = map[int32]*watch{}
	if l.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, err
	}
	_, err = l.poll.add(l.bell, unix.EPOLLIN, func(uint32) {
		var b [8]byte
		_, _ = unix.Read(l.bell, b[:])
	}, nil)
	return l, err
}

// post makes the loop call f.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.mail = append(l.mail, f)
	first := len(l.mail) == 1
	l.mu.Unlock()
	if first {
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (l *loop) run() {
	var events [32]unix.EpollEvent
	for !l.over {
		if l.yield.Swap(false) {
			runtime.Gosched() // lets a pump run before this goroutine blocks in the kernel
		}
		n, err := unix.EpollWait(l.poll.fd, events[:], l.timeout())
		if err != nil && err != unix.EINTR {
			fail("epoll_wait: " + err.Error())
		}
		if err != nil {
			l.reap() // the signal was probably SIGCHLD
		}
		for i := range max(n, 0) {
			l.poll.dispatch(events[i])
		}
		l.mu.Lock()
		mail := l.mail
		l.mail = l.read[:0]
		l.mu.Unlock()
		for _, f := range mail {
			f()
		}
		clear(mail)
		l.read = mail
		l.fire()
		l.tidy()
	}
}

// maxGarbage is how many bytes may be allocated between two garbage collections.
const maxGarbage = 128 << 10

// addGarbage counts bytes that were allocated and become garbage. Beyond maxGarbage it wakes the loop.
func (l *loop) addGarbage(bytes int) {
	if n := l.garbage.Add(int64(bytes)); n > maxGarbage && n-int64(bytes) <= maxGarbage {
		l.post(func() {})
	}
}

// tidy collects garbage, of which each request leaves some. The collector's own schedule is
// disabled, since it would wake an idle process.
func (l *loop) tidy() {
	if l.garbage.Load() > maxGarbage {
		l.garbage.Store(0)
		runtime.GC()
	}
}

// timer is a call that is due at a time.
type timer struct {
	at time.Time
	f  func() // nil after the call or stop
}

func (l *loop) after(d time.Duration, f func()) *timer {
	t := &timer{at: time.Now().Add(d), f: f}
	l.timers = append(l.timers, t)
	return t
}

func (t *timer) stop() {
	if t != nil {
		t.f = nil
	}
}

// timeout returns how long to wait for events, in milliseconds; -1 (no limit) if no timer is set.
func (l *loop) timeout() int {
	kept := l.timers[:0]
	var next *timer
	for _, t := range l.timers {
		if t.f == nil {
			continue
		}
		kept = append(kept, t)
		if next == nil || t.at.Before(next.at) {
			next = t
		}
	}
	clear(l.timers[len(kept):])
	l.timers = kept
	if next == nil {
		return -1
	}
	return int(min(max(time.Until(next.at)+time.Millisecond-1, 0)/time.Millisecond, 1<<30))
}

func (l *loop) fire() {
	if len(l.timers) == 0 {
		return
	}
	now := time.Now()
	for _, t := range l.timers { // timers that are added meanwhile are handled in the next round
		if f := t.f; f != nil && !t.at.After(now) {
			t.f = nil
			f()
		}
	}
}
