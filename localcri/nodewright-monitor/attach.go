//go:build linux

package main

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

const (
	clientBuffer  = 64 << 10    // bytes that are buffered for a slow client, in addition to its pipe
	clientTimeout = time.Second // how long the buffer of a client may be full before the client is disconnected
	maxClients    = 32          // of one container
	inputSize     = 4 << 10
)

// client is a client that is attached to a container.
type client struct {
	p       *pump
	handle  uint64
	done    func(code uint64)
	input   int // -1 when it has ended
	hadIn   bool
	inWatch *watch
	buf     []byte
	pending []byte // read from input, and not written to the container yet; part of buf
	outputs [2]*sink
	since   time.Time     // time at which its buffer became full; zero if it is not full
	spent   time.Duration // how long the buffer was full since it was last empty
	leaving bool          // there is no more output; the client only has to read its buffer
}

// sink is the destination of one output of a client.
type sink struct {
	fd      int
	w       *watch
	buf     []byte // clientBuffer bytes; created when the client is behind for the first time
	pending []byte // part of buf
}

// attach adds a client. It takes ownership of the descriptors (-1: none).
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
			return wire.Malformed // neither a pipe nor a socket
		}
		k.w = w
	}
	if files[0] >= 0 {
		if p.stdin < 0 && p.master < 0 {
			_ = unix.Close(files[0])
			return wire.OK // the container has no input, as with /dev/null
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

// offer writes the data of an output to all clients. A slow client does not delay the others.
// While the buffer of a client is full, no more output is read, until the client has read or
// clientTimeout has passed.
func (p *pump) offer(index int, data []byte) {
	for i := len(p.clients) - 1; i >= 0; i-- { // from the end, since a client may be removed
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
		c.p.l.addGarbage(clientBuffer)
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

// writeSome writes as much as it can without blocking. It returns false if there is no reader any
// more.
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

// measure records when the buffer of the client becomes full, and when it is no longer full. The
// time for which it was full adds up until the buffer is empty, so that a client that is always a
// little too slow is disconnected too.
func (c *client) measure() {
	behind := c.behind()
	full := behind > clientBuffer-batchSize || c.leaving
	switch {
	case behind == 0:
		c.since, c.spent = time.Time{}, 0
	case full && c.since.IsZero():
		c.since = time.Now()
		since, rest := c.since, clientTimeout-c.spent
		c.p.l.addGarbage(512)
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

// full reports whether the buffer of a client is full.
func (p *pump) full() bool {
	for _, c := range p.clients {
		if !c.since.IsZero() && !c.leaving {
			return true
		}
	}
	return false
}

// resume continues to read the outputs that were not read because a client was full.
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

// loseOutput drops an output without a reader. If the client has no other stream, the client is
// dropped too.
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

// readable copies a client's input to the container, as much as the container accepts.
func (c *client) readable() {
	p := c.p
	if len(c.pending) > 0 || c.input < 0 {
		return
	}
	if c.buf == nil {
		c.buf = make([]byte, inputSize)
		p.l.addGarbage(inputSize)
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

// push writes the pending input of a client to the container.
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

// fed is called when the container accepts input again.
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

// shutStdin ends the container's standard input. It does nothing for a terminal, whose input
// cannot end.
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

// endClients disconnects all clients, each when it has read its buffer, or after
// clientTimeout.
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

// detach drops the client with this handle, if there is one.
func (p *pump) detach(handle uint64) {
	for i := len(p.clients) - 1; i >= 0; i-- {
		if p.clients[i].handle == handle {
			p.drop(p.clients[i], wire.OK)
		}
	}
	p.resume()
}

// drop removes a client, and calls its function done with the code.
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
