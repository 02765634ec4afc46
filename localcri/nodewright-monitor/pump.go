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

// pump copies the streams of one container: to its log, to those who are
// attached, and from them. All of it belongs to the pump's goroutine, but for
// what is guarded.
type pump struct {
	l    *loop
	id   string
	wake chan struct{}

	mu     sync.Mutex
	queue  []work // guarded by mu
	spare  []work // guarded by mu: emptied, to be used again
	stdin  int    // write end of standard input or -1; guarded by mu for those who duplicate it
	master int    // of the terminal or -1; guarded by mu likewise

	log     *logFile
	streams []*stream
	clients []*client
	once    bool   // standard input ends with its first client
	feed    *watch // the container's standard input
	shut    func() // standard input has ended
	drained func() // what was there at the container's end has been read
	ended   bool   // the container's end has been handled
	closed  bool
}

// work is something for a pump to do: a call, or a descriptor that is ready.
type work struct {
	w      *watch
	events uint32
	f      func()
}

// stream is one of a container's outputs.
type stream struct {
	index int // of its name
	fd    int
	w     *watch
	late  bool // not yet read up to where it was at the container's end
	todo  int  // bytes that were there then
	idle  bool // not armed: a client is full
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

// post has f called in the pump's goroutine. It reports false if so much waits
// there that the disk must hang.
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

// follow begins to read an output. The descriptor is the pump's from now on.
func (p *pump) follow(index, fd int) {
	s := &stream{index: index, fd: fd}
	var err error
	if s.w, err = p.l.poll.add(fd, 0, func(uint32) { p.read(s) }, p); err != nil {
		_ = unix.Close(fd)
		return
	}
	p.streams = append(p.streams, s)
	p.read(s) // a pipe that was never written to since it was opened says nothing of its end by itself
}

// hold names what a successor would need before the pump comes to it: the answer
// to who waits for a start must have it. -1 is none.
func (p *pump) hold(stdin, master int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdin, p.master = stdin, master
}

// setStdin hands the pump the write end of the container's standard input.
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

// setMaster hands the pump a terminal. Its output is one stream, its input what
// clients send.
func (p *pump) setMaster(fd int) {
	_ = unix.SetNonblock(fd, true)
	in := dup(fd) // waited for by itself
	w, err := p.l.poll.add(in, 0, func(uint32) { p.fed() }, p)
	if err != nil {
		p.hold(-1, -1)
		closeFiles([]int{in, fd})
		return
	}
	p.feed = w
	p.follow(0, fd)
}

// read copies what there is of an output.
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
		if s.late && s.todo == 0 { // somebody else goes on writing
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

// drain calls done once all has been read that is there now, and the end of
// outputs that nobody holds any more, which may complete a log's last line. A
// process that keeps an output open, or never stops writing, holds up nobody.
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
			p.read(s) // also to find its end
		}
	}
	p.checkDrained()
}

// caughtUp notes that a stream has been read up to the container's end.
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

// finish is called when the container's end has been told: nobody is attached to
// what has ended. Outputs that somebody else still holds go on to the log.
func (p *pump) finish() {
	p.ended = true
	p.shutStdin()
	p.endClients()
	p.settle()
}

// settle closes a pump that has nothing more to do.
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

// duplicate gives what a successor would need: standard input's write end and
// the terminal's master, or -1.
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
