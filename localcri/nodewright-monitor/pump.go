//go:build linux

package main

import (
	"bytes"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// pump copies the streams of one container: its outputs to the log and to attached clients, and
// the input of clients to it. Only the pump's goroutine may use the fields, except those that mu
// guards.
type pump struct {
	l    *loop
	id   string
	wake chan struct{}

	mu     sync.Mutex
	queue  []work // guarded by mu
	spare  []work // guarded by mu: an empty slice for reuse
	stdin  int    // write end of standard input or -1; guarded by mu for those who duplicate it
	master int    // of the terminal or -1; guarded by mu likewise

	log     *logFile
	streams []*stream
	clients []*client
	once    bool   // standard input ends with its first client
	feed    *watch // the container's standard input
	shut    func() // called when standard input has ended
	drained func() // called when the output from before the container's end has been read
	ended   bool   // the container's end has been handled
	closed  bool
}

// work is a call for a pump to make, or a descriptor that is ready.
type work struct {
	w      *watch
	events uint32
	f      func()
}

// stream is one of a container's outputs.
type stream struct {
	index int // in streamNames
	fd    int
	w     *watch
	late  bool // some output from before the container's end is unread
	todo  int  // unread bytes of that output
	idle  bool // the pump does not read, because a client's buffer is full
}

func (l *loop) newPump(id string) *pump {
	p := &pump{l: l, id: id, wake: make(chan struct{}, 1), stdin: -1, master: -1}
	go p.run()
	return p
}

func (p *pump) enqueue(w work) {
	p.mu.Lock()
	p.queue = append(p.queue, w)
	p.mu.Unlock()
	p.l.yield.Store(true)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// post makes the pump's goroutine call f. It returns false if the queue is so long that the disk
// must be hanging.
func (p *pump) post(f func()) bool {
	p.mu.Lock()
	busy := len(p.queue) > 256
	p.mu.Unlock()
	if !busy {
		p.enqueue(work{f: f})
	}
	return !busy
}

func (p *pump) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) > 0
}

func (p *pump) run() {
	for !p.closed {
		p.mu.Lock()
		queue := p.queue
		p.queue, p.spare = p.spare, nil
		p.mu.Unlock()
		for _, w := range queue {
			switch {
			case w.f != nil:
				w.f()
			case !w.w.gone:
				w.w.ready(w.events)
			}
		}
		empty := len(queue) == 0
		clear(queue)
		p.mu.Lock()
		p.spare = queue[:0]
		p.mu.Unlock()
		if empty && !p.closed {
			<-p.wake
		}
	}
}

// follow starts to read an output. It takes ownership of the descriptor.
func (p *pump) follow(index, fd int) {
	s := &stream{index: index, fd: fd}
	var err error
	if s.w, err = p.l.poll.add(fd, 0, func(uint32) { p.read(s) }, p); err != nil {
		_ = unix.Close(fd)
		return
	}
	p.streams = append(p.streams, s)
	p.read(s) // epoll does not report the end of a pipe without a write since it was opened
}

// hold sets the descriptors that a successor would need (-1: none), before the pump's goroutine
// uses them: the answer to a start request must contain them.
func (p *pump) hold(stdin, master int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdin, p.master = stdin, master
}

// setStdin gives the pump the write end of the container's standard input.
func (p *pump) setStdin(fd int, once bool) {
	_ = unix.SetNonblock(fd, true)
	w, err := p.l.poll.add(fd, 0, func(uint32) { p.fed() }, p)
	if err != nil {
		p.hold(-1, -1)
		_ = unix.Close(fd)
		return
	}
	p.feed, p.once = w, once
}

// setMaster gives the pump a terminal. Its output is one stream, and its input comes from clients.
func (p *pump) setMaster(fd int) {
	_ = unix.SetNonblock(fd, true)
	in := dup(fd) // watched separately
	w, err := p.l.poll.add(in, 0, func(uint32) { p.fed() }, p)
	if err != nil {
		p.hold(-1, -1)
		closeFiles([]int{in, fd})
		return
	}
	p.feed = w
	p.follow(0, fd)
}

// read copies the available data of an output.
func (p *pump) read(s *stream) {
	b := p.l.buffers.get()
	used, kept, now := 0, 0, time.Now().UnixNano()
	flush := func() {
		if kept > 0 {
			p.log.write(s.index, b.in[:kept], now, true, b.out)
			kept = 0
		}
	}
	defer func() { p.l.buffers.put(b, used) }()
	for {
		if p.full() {
			flush()
			s.idle = true
			if s.todo == 0 {
				p.caughtUp(s)
			}
			return
		}
		n, err := unix.Read(s.fd, b.in[kept:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			flush()
			p.caughtUp(s)
			p.l.poll.arm(s.w, unix.EPOLLIN)
			return
		case n <= 0:
			flush()
			p.end(s)
			return
		}
		now = time.Now().UnixNano()
		used = max(used, kept+n)
		p.offer(s.index, b.in[kept:kept+n])
		all := b.in[:kept+n]
		kept = p.log.write(s.index, all, now, len(all) == batchSize && bytes.IndexByte(all, '\n') < 0, b.out)
		copy(b.in, all[len(all)-kept:])
		if s.late && s.todo == 0 { // another process continues to write
			flush()
			p.caughtUp(s)
		}
		s.todo = max(s.todo-n, 0)
		runtime.Gosched()
		if p.busy() {
			flush()
			p.enqueue(work{w: s.w})
			return
		}
	}
}

// end closes an output that has ended.
func (p *pump) end(s *stream) {
	for i, other := range p.streams {
		if other == s {
			p.streams = append(p.streams[:i], p.streams[i+1:]...)
			break
		}
	}
	p.l.poll.remove(s.w)
	if s.fd != p.master {
		_ = unix.Close(s.fd)
	}
	p.checkDrained()
	if len(p.streams) == 0 {
		p.endClients()
		p.settle()
	}
}

// drain calls done when all data that is available now has been read, and the ends of outputs that
// no process holds any more, which may complete the last line of the log. A process that keeps an
// output open, or never stops writing, does not delay the call.
func (p *pump) drain(done func()) {
	p.drained = done
	for _, s := range p.streams {
		n, err := unix.IoctlGetInt(s.fd, unix.TIOCINQ)
		if s.todo = n; err != nil || s.todo < 0 {
			s.todo = 0
		}
		s.late = s.todo > 0 || !s.idle
	}
	for _, s := range append([]*stream(nil), p.streams...) {
		if s.w.gone {
			continue
		}
		if !s.idle {
			p.read(s) // also to detect its end
		}
	}
	p.checkDrained()
}

// caughtUp records that a stream has been read up to the container's end.
func (p *pump) caughtUp(s *stream) {
	s.todo, s.late = 0, false
	p.checkDrained()
}

func (p *pump) checkDrained() {
	if p.drained == nil {
		return
	}
	for _, s := range p.streams {
		if s.late {
			return
		}
	}
	p.drained()
	p.drained = nil
}

// finish is called when the container's end has been reported. It disconnects the clients. Outputs
// that other processes still hold are logged further.
func (p *pump) finish() {
	p.ended = true
	p.shutStdin()
	p.endClients()
	p.settle()
}

// settle closes a pump that has nothing left to do.
func (p *pump) settle() {
	if p.ended && len(p.streams) == 0 && len(p.clients) == 0 {
		p.close()
	}
}

// close ends the pump.
func (p *pump) close() {
	if p.closed {
		return
	}
	p.closed = true
	for i := len(p.clients) - 1; i >= 0; i-- {
		p.drop(p.clients[i], wire.OK)
	}
	p.shutStdin()
	for _, s := range p.streams {
		p.l.poll.remove(s.w)
		if s.fd != p.master {
			_ = unix.Close(s.fd)
		}
	}
	p.streams = nil
	if p.master >= 0 {
		p.l.poll.remove(p.feed)
		_ = unix.Close(p.feed.fd)
		p.mu.Lock()
		_ = unix.Close(p.master)
		p.master = -1
		p.mu.Unlock()
	}
	if p.log != nil {
		p.log.close()
	}
}

// duplicate returns duplicates of the descriptors that a successor would need: the write end of
// standard input and the terminal's master; -1 for a missing one.
func (p *pump) duplicate() (stdin, master int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return dup(p.stdin), dup(p.master)
}

func dup(fd int) int {
	if fd < 0 {
		return -1
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return -1
	}
	return n
}
