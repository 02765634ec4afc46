//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

const (
	clientBuffer   = 64 << 10    // bytes that a client may be behind, beside what its pipe holds
	clientPatience = time.Second // how long a client may be full before it is cut off
	maxClients     = 32          // of one container
	inputSize      = 4 << 10
)

// client is somebody who is attached to a container.
type client struct {
	p       *pump
	handle  uint64
	done    func(code uint64)
	input   int // -1 when it has ended
	hadIn   bool
	inWatch *watch
	buf     []byte
	pending []byte // read from input, and not taken by the container yet; part of buf
	outputs [2]*sink
	since   time.Time     // since when it has been full; zero: it is not
	spent   time.Duration // how long it was full since it was last up to date
	leaving bool          // all was written, but for what it has not taken
}

// sink is where a client gets an output.
type sink struct {
	fd      int
	w       *watch
	buf     []byte // clientBuffer, once the client was behind
	pending []byte // part of buf
}

// attach adds a client. The descriptors (-1: none) are the pump's from now on.
func (p *pump) attach(handle uint64, files [3]int, done func(uint64)) uint64 {
	c := &client{p: p, handle: handle, done: done, input: -1}
	if p.ended || p.closed || len(p.streams) == 0 || len(p.clients) >= maxClients {
		closeFiles(files[:])
		if len(p.clients) >= maxClients {
			return wire.Busy
		}
		return wire.NotRunning
	}
	p.clients = append(p.clients, c)
	for i := range 2 {
		fd := files[1+i]
		if fd < 0 {
			continue
		}
		_ = unix.SetNonblock(fd, true)
		k := &sink{fd: fd}
		c.outputs[i], files[1+i] = k, -1
		w, err := p.l.poll.add(fd, 0, func(uint32) { c.writable(k) }, p)
		if err != nil {
			closeFiles(files[:])
			c.done = nil
			p.drop(c, 0)
			return wire.Malformed // not a pipe nor a socket
		}
		k.w = w
	}
	if files[0] >= 0 {
		if p.stdin < 0 && p.master < 0 {
			_ = unix.Close(files[0])
			return wire.OK // as at /dev/null
		}
		_ = unix.SetNonblock(files[0], true)
		c.input, c.hadIn = files[0], true
		var err error
		if c.inWatch, err = p.l.poll.add(c.input, 0, func(uint32) { c.readable() }, p); err != nil {
			c.done = nil
			p.drop(c, 0)
			return wire.Malformed
		}
		p.l.poll.arm(c.inWatch, unix.EPOLLIN)
	}
	return wire.OK
}

// offer gives an output's bytes to all clients. None holds up the others; one
// that is behind by its buffer keeps the next batch from being read, for as long
// as its patience lasts.
func (p *pump) offer(index int, data []byte) {
	for i := len(p.clients) - 1; i >= 0; i-- { // one that is dropped leaves the others in their places
		if c := p.clients[i]; c.outputs[index] != nil && !c.leaving {
			c.write(c.outputs[index], data)
		}
	}
}

func (c *client) write(k *sink, data []byte) {
	if len(k.pending) == 0 {
		n, ok := writeSome(k.fd, data)
		if !ok {
			c.loseOutput(k)
			return
		}
		if data = data[n:]; len(data) == 0 {
			return
		}
		c.p.l.poll.arm(k.w, unix.EPOLLOUT)
	}
	if k.buf == nil {
		k.buf = make([]byte, clientBuffer)
		c.p.l.litter(clientBuffer)
	}
	if len(k.pending) > 0 && cap(k.pending)-len(k.pending) < len(data) {
		k.pending = k.buf[:copy(k.buf, k.pending)]
	}
	if len(k.pending) == 0 {
		k.pending = k.buf[:0]
	}
	k.pending = append(k.pending, data...)
	c.measure()
}

// writeSome writes what fits; it reports false when nobody reads any more.
func writeSome(fd int, data []byte) (int, bool) {
	done := 0
	for done < len(data) {
		n, err := unix.Write(fd, data[done:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return done, true
		case err != nil || n <= 0:
			return done, false
		}
		done += n
	}
	return done, true
}

func (c *client) writable(k *sink) {
	n, ok := writeSome(k.fd, k.pending)
	if !ok {
		c.loseOutput(k)
		return
	}
	k.pending = k.pending[n:]
	if len(k.pending) > 0 {
		c.p.l.poll.arm(k.w, unix.EPOLLOUT)
	} else {
		k.pending = nil
	}
	c.measure()
	if c.leaving && c.behind() == 0 {
		c.p.drop(c, wire.OK)
	}
	c.p.resume()
}

func (c *client) behind() int {
	most := 0
	for _, k := range c.outputs {
		if k != nil {
			most = max(most, len(k.pending))
		}
	}
	return most
}

// measure notes when the client began to be full, or that it no longer is. How
// long it was full adds up until it is up to date again: one that is always a
// little too slow is cut off as well.
func (c *client) measure() {
	behind := c.behind()
	full := behind > clientBuffer-batchSize || c.leaving
	switch {
	case behind == 0:
		c.since, c.spent = time.Time{}, 0
	case full && c.since.IsZero():
		c.since = time.Now()
		since, rest := c.since, clientPatience-c.spent
		c.p.l.litter(512)
		p := c.p
		p.l.post(func() {
			p.l.after(rest, func() {
				p.enqueue(work{f: func() {
					if c.since.Equal(since) && c.done != nil {
						p.drop(c, wire.Cut)
						p.resume()
					}
				}})
			})
		})
	case !full && !c.since.IsZero():
		c.spent += time.Since(c.since)
		c.since = time.Time{}
	}
}

// full reports whether a client cannot take another batch.
func (p *pump) full() bool {
	for _, c := range p.clients {
		if !c.since.IsZero() && !c.leaving {
			return true
		}
	}
	return false
}

// resume reads on where it was stopped for a client that was full.
func (p *pump) resume() {
	if p.full() {
		return
	}
	for _, s := range p.streams {
		if s.idle {
			s.idle = false
			p.enqueue(work{w: s.w})
		}
	}
}

// loseOutput drops an output that nobody reads, and with the last one the client.
func (c *client) loseOutput(k *sink) {
	c.closeOutput(k)
	c.measure()
	if c.outputs[0] == nil && c.outputs[1] == nil && c.input < 0 {
		c.p.drop(c, wire.OK)
	}
	c.p.resume()
}

func (c *client) closeOutput(k *sink) {
	for i := range c.outputs {
		if c.outputs[i] == k {
			c.outputs[i] = nil
		}
	}
	c.p.l.poll.remove(k.w)
	_ = unix.Close(k.fd)
	k.pending = nil
}

// readable copies a client's input to the container, no more than it takes.
func (c *client) readable() {
	p := c.p
	if len(c.pending) > 0 || c.input < 0 {
		return
	}
	if c.buf == nil {
		c.buf = make([]byte, inputSize)
		p.l.litter(inputSize)
	}
	n, err := unix.Read(c.input, c.buf)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		p.l.poll.arm(c.inWatch, unix.EPOLLIN)
	case n <= 0:
		c.closeInput()
	default:
		c.pending = c.buf[:n]
		p.push(c)
	}
}

// push writes what a client has read to the container.
func (p *pump) push(c *client) {
	fd := p.stdin
	if p.master >= 0 {
		fd = p.master
	}
	n, ok := 0, false
	if fd >= 0 {
		n, ok = writeSome(fd, c.pending)
	}
	if !ok { // the container closed it
		c.pending = nil
		p.shutStdin()
		c.closeInput()
		return
	}
	if c.pending = c.pending[n:]; len(c.pending) > 0 {
		p.l.poll.arm(p.feed, unix.EPOLLOUT)
		return
	}
	c.pending = nil
	p.l.poll.arm(c.inWatch, unix.EPOLLIN)
}

// fed is called when the container takes input again.
func (p *pump) fed() {
	for i := len(p.clients) - 1; i >= 0; i-- {
		if c := p.clients[i]; len(c.pending) > 0 && c.input >= 0 {
			p.push(c)
		}
	}
}

func (c *client) closeInput() {
	if c.input < 0 {
		return
	}
	c.p.l.poll.remove(c.inWatch)
	_ = unix.Close(c.input)
	c.input, c.pending = -1, nil
	if c.p.once {
		c.p.shutStdin()
	}
}

// shutStdin ends the container's standard input. A terminal's cannot end.
func (p *pump) shutStdin() {
	if p.master >= 0 {
		return
	}
	p.mu.Lock()
	fd := p.stdin
	p.stdin = -1
	p.mu.Unlock()
	if fd < 0 {
		return
	}
	p.l.poll.remove(p.feed)
	_ = unix.Close(fd)
	if p.shut != nil {
		p.shut()
	}
}

// endClients lets go all clients, each after it has taken what was written, or
// after its patience.
func (p *pump) endClients() {
	for i := len(p.clients) - 1; i >= 0; i-- {
		c := p.clients[i]
		if c.leaving {
			continue
		}
		c.leaving = true
		if c.behind() == 0 {
			p.drop(c, wire.OK)
			continue
		}
		c.since, c.spent = time.Time{}, 0
		c.measure()
	}
}

// detach drops the client of that handle, if it is there.
func (p *pump) detach(handle uint64) {
	for i := len(p.clients) - 1; i >= 0; i-- {
		if p.clients[i].handle == handle {
			p.drop(p.clients[i], wire.OK)
		}
	}
	p.resume()
}

// drop forgets a client.
func (p *pump) drop(c *client, code uint64) {
	for i, other := range p.clients {
		if other == c {
			p.clients = append(p.clients[:i], p.clients[i+1:]...)
			break
		}
	}
	for _, k := range c.outputs {
		if k != nil {
			c.closeOutput(k)
		}
	}
	c.closeInput()
	if done := c.done; done != nil {
		c.done = nil
		done(code)
	}
	p.settle()
}

func closeFD(fd int) { _ = unix.Close(fd) }

func closeFiles(files []int) {
	for i, fd := range files {
		if fd >= 0 {
			_ = unix.Close(fd)
			files[i] = -1
		}
	}
}
