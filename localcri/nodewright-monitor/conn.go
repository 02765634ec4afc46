//go:build linux

package main

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

const (
	receiveSize = wire.MaxMessage + 1
	maxConns    = 16
	maxQueue    = 1024 // messages that a client may leave unread
)

// conn is a connection of a client.
type conn struct {
	l       *loop
	fd      int
	w       *watch
	greeted bool
	closed  bool
	queue   []outgoing
	handles map[uint64]string // attached: handle to container
}

// outgoing is a message that waits to be sent to a client.
type outgoing struct {
	m     wire.Message
	files []int
	kept  string // ID of the container of a Kept message, whose state is added when it is sent
}

func (l *loop) accept() {
	for {
		fd, _, err := unix.Accept4(listenFD, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) { // no descriptor is free: try again in a second
				l.poll.arm(l.door, 0)
				l.after(time.Second, func() { l.poll.arm(l.door, unix.EPOLLIN) })
			}
			return
		}
		peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || peer.Uid != 0 {
			_ = unix.Close(fd)
			continue
		}
		c := &conn{l: l, fd: fd}
		if c.w, err = l.poll.add(fd, unix.EPOLLIN, c.ready, nil); err != nil {
			_ = unix.Close(fd)
			continue
		}
		l.addGarbage(1 << 10)
		if l.conns = append(l.conns, c); len(l.conns) > maxConns {
			l.conns[0].close()
		}
	}
}

func (c *conn) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.flush()
	}
	for range 16 { // limited, so that other connections are served too
		if c.closed || !c.read() {
			return
		}
	}
}

// read handles a message. It returns false if no other message is available.
func (c *conn) read() bool {
	b := c.l.receive
	var oob [128]byte
	n, oobn, flags, _, err := unix.Recvmsg(c.fd, b, oob[:], unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EINTR):
		return true
	case errors.Is(err, unix.EAGAIN):
		return false
	case err != nil || n <= 0:
		closeFiles(rights(oob[:max(oobn, 0)]))
		c.close()
		return false
	}
	files := rights(oob[:oobn])
	m, err := wire.Decode(b[:n])
	c.l.addGarbage(2*n + 1<<10)
	if err != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(files) > wire.MaxFiles {
		closeFiles(files)
		c.close()
		return false
	}
	named, ok := name(&m, files)
	if !ok {
		closeFiles(files)
		c.refuse(&m, wire.Malformed, "Files: does not match the descriptors of the message")
		return true
	}
	c.handle(&m, &named)
	closeFiles(named[:])
	return true
}

// name places each descriptor where the message says that it belongs.
func name(m *wire.Message, files []int) ([3]int, bool) {
	named := [3]int{-1, -1, -1}
	if m.Files >= 1<<wire.MaxFiles {
		return named, false
	}
	next := 0
	for i := range named {
		if m.Files&(1<<i) != 0 {
			if next == len(files) {
				return named, false
			}
			named[i] = files[next]
			next++
		}
	}
	return named, next == len(files)
}

// handle answers a request. The caller closes the descriptors that are left in files.
func (c *conn) handle(m *wire.Message, files *[3]int) {
	l := c.l
	if !c.greeted {
		c.hello(m)
		return
	}
	switch m.Type {
	case wire.Start:
		l.start(c, m)
	case wire.Adopt:
		l.adopt(c, m, files)
	case wire.Exec:
		given := *files
		*files = [3]int{-1, -1, -1}
		l.exec(c, m, given)
	case wire.Kill:
		p := l.processes[m.Handle]
		if p == nil {
			c.refuse(m, wire.Unknown, "")
			return
		}
		p.kill()
		c.accept(m)
	case wire.Quit:
		if l.busy() {
			c.refuse(m, wire.Running, "")
			return
		}
		c.accept(m)
		l.over = true
	case wire.Attach, wire.Detach, wire.Resize, wire.Reopen, wire.Keep, wire.Forget:
		k := l.containers[m.ID]
		if k == nil {
			c.refuse(m, wire.Unknown, "")
			return
		}
		c.handleOf(k, m, files)
	default:
		c.refuse(m, wire.Unsupported, "")
	}
}

// handleOf answers a request that concerns a container.
func (c *conn) handleOf(k *container, m *wire.Message, files *[3]int) {
	switch m.Type {
	case wire.Attach:
		if k.phase != running {
			c.refuse(m, wire.NotRunning, "")
			return
		}
		given := *files
		*files = [3]int{-1, -1, -1}
		c.attach(k, m, given)
		return
	case wire.Detach:
		p, handle := k.pump, m.Handle
		p.enqueue(work{f: func() { p.detach(handle) }})
	case wire.Resize:
		_, master := k.pump.duplicate()
		if master < 0 {
			c.refuse(m, wire.Failed, "container has no terminal")
			return
		}
		err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(m.Height), Col: uint16(m.Width)})
		_ = unix.Close(master)
		if err != nil {
			c.refuse(m, wire.Failed, err.Error())
			return
		}
	case wire.Reopen:
		c.reopen(k, m)
		return
	case wire.Keep:
		if len(m.Record) > wire.MaxRecord || !fits(&k.m, m.Record) {
			c.refuse(m, wire.Malformed, "Record: at most 32 KiB are allowed, and 60 KiB together with the container's other data")
			return
		}
		k.m.Record = m.Record
	case wire.Forget:
		if k.phase < ended || k.phase == ended && !k.told {
			c.refuse(m, wire.Running, "")
			return
		}
		delete(c.l.containers, m.ID)
		p := k.pump
		p.enqueue(work{f: p.close})
	}
	c.accept(m)
}

// reopen continues the log in another file.
func (c *conn) reopen(k *container, m *wire.Message) {
	switch {
	case k.phase != running:
		c.refuse(m, wire.NotRunning, "")
		return
	case !absolute(m.Log):
		c.refuse(m, wire.Malformed, "path "+m.Log+": an absolute path is needed")
		return
	}
	p, path, request := k.pump, m.Log, *m
	if !p.post(func() {
		err := p.log.reopen(path)
		c.l.post(func() {
			if err != nil {
				c.refuse(&request, wire.Failed, "log "+path+": "+err.Error())
				return
			}
			k.m.Log = path
			c.accept(&request)
		})
	}) {
		c.refuse(m, wire.Busy, "log "+k.m.Log+" does not accept data")
	}
}

func (c *conn) attach(k *container, m *wire.Message, files [3]int) {
	l, p, request := c.l, k.pump, *m
	l.handles++
	handle := l.handles
	if c.handles == nil {
		c.handles = map[uint64]string{}
	}
	c.handles[handle] = m.ID
	if !p.post(func() {
		over := func(code uint64) {
			l.post(func() {
				delete(c.handles, handle)
				c.send(wire.Message{Type: wire.AttachDone, Sandbox: request.Sandbox, ID: request.ID, Handle: handle, Error: code}, nil)
			})
		}
		code := p.attach(handle, files, over)
		l.post(func() {
			if code != wire.OK {
				delete(c.handles, handle)
				c.refuse(&request, code, "")
				return
			}
			c.send(wire.Message{Type: wire.Reply, Seq: request.Seq, Handle: handle}, nil)
			if c.closed {
				p.enqueue(work{f: func() { p.detach(handle) }})
			}
		})
	}) {
		closeFiles(files[:])
		delete(c.handles, handle)
		c.refuse(m, wire.Busy, "log "+k.m.Log+" does not accept data")
	}
}

// hello agrees on a version, and reports all containers of the sandbox.
func (c *conn) hello(m *wire.Message) {
	if m.Type != wire.Hello || m.Max < wire.MinVersion || m.Min > wire.Version {
		c.refuse(m, wire.Unsupported, "")
		c.close()
		return
	}
	c.greeted = true
	for id, k := range c.l.containers {
		if m.Sandbox == "" || k.m.Sandbox == m.Sandbox {
			c.push(outgoing{m: wire.Message{Type: wire.Kept, Seq: m.Seq}, kept: id})
		}
	}
	c.push(outgoing{m: wire.Message{Type: wire.Reply, Seq: m.Seq, Max: min(m.Max, wire.Version), PID: uint64(unix.Getpid())}})
	c.flush()
}

func (l *loop) start(c *conn, m *wire.Message) {
	if k := l.containers[m.ID]; k != nil {
		switch {
		case k.phase < running && len(k.waiters) >= maxWaiters:
			c.refuse(m, wire.Busy, "at most 64 calls for one container are allowed at a time")
		case k.phase < running:
			k.waiters = append(k.waiters, waiter{c, m.Seq})
		default:
			k.answerTo(waiter{c, m.Seq})
		}
		return
	}
	if why := refusal(m); why != "" {
		c.refuse(m, wire.Malformed, why)
		return
	}
	m.Flags &= wire.FlagStdin | wire.FlagStdinOnce | wire.FlagTerminal
	k := l.newContainer(m)
	k.waiters = []waiter{{c, m.Seq}}
	k.start()
}

func (l *loop) adopt(c *conn, m *wire.Message, files *[3]int) {
	if l.containers[m.ID] != nil {
		c.refuse(m, wire.Exists, "")
		return
	}
	why := refusal(m)
	if why == "" && m.Flags&(wire.FlagNotStarted|wire.FlagExited) == 0 && (m.PID < 2 || m.PID > 1<<30) {
		why = "Started: want the PID of a running container"
	}
	if why != "" {
		c.refuse(m, wire.Malformed, why)
		return
	}
	given := *files
	*files = [3]int{-1, -1, -1}
	request := *m
	l.newContainer(m).adopt(given, func(failure string) {
		c.send(wire.Message{Type: wire.Reply, Seq: request.Seq, Text: failure}, nil)
	})
}

// event sends a message to the newest client that has sent a Hello.
func (l *loop) event(m wire.Message) {
	for i := len(l.conns) - 1; i >= 0; i-- {
		if c := l.conns[i]; c.greeted && !c.closed {
			c.send(m, nil)
			return
		}
	}
}

func (c *conn) accept(m *wire.Message) { c.send(wire.Message{Type: wire.Reply, Seq: m.Seq}, nil) }

func (c *conn) refuse(m *wire.Message, code uint64, text string) {
	c.send(wire.Message{Type: wire.Reply, Seq: m.Seq, Error: code, Text: text}, nil)
}

// send sends a message, or queues it until the client has read earlier ones. It takes ownership of
// the descriptors.
func (c *conn) send(m wire.Message, files []int) {
	if c.closed {
		closeFiles(files)
		return
	}
	c.push(outgoing{m: m, files: files})
	c.flush()
}

func (c *conn) push(o outgoing) {
	c.queue = append(c.queue, o)
	c.l.addGarbage(1 << 10)
}

// flush sends as many messages as the client accepts now. A client that leaves too many unread is
// disconnected; it asks for the state when it reconnects.
func (c *conn) flush() {
	waits := false
	for len(c.queue) > 0 && !c.closed {
		o := &c.queue[0]
		if o.kept != "" {
			k := c.l.containers[o.kept]
			if k == nil {
				c.queue = c.queue[1:]
				continue
			}
			seq := o.m.Seq
			o.m = k.m
			o.m.Type, o.m.Seq, o.m.Flags = wire.Kept, seq, k.m.Flags
			k.describe(&o.m)
			o.files = k.duplicates(&o.m)
		}
		b, err := o.m.Append(nil)
		c.l.addGarbage(2 * len(b))
		if err != nil {
			b, _ = (&wire.Message{Type: o.m.Type, Seq: o.m.Seq, ID: o.m.ID, Error: wire.Failed, Text: err.Error()}).Append(nil)
		}
		var oob []byte
		if len(o.files) > 0 {
			oob = unix.UnixRights(o.files...)
		}
		err = unix.Sendmsg(c.fd, b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			if o.kept != "" {
				closeFiles(o.files)
				o.files = nil
			}
			waits = true
			break
		}
		closeFiles(o.files)
		o.files = nil
		if err != nil {
			c.close()
			return
		}
		c.queue = c.queue[1:]
	}
	switch {
	case c.closed:
	case len(c.queue) > maxQueue:
		c.close()
	case waits:
		c.l.poll.arm(c.w, unix.EPOLLIN|unix.EPOLLOUT)
	default:
		c.queue = nil
		c.l.poll.arm(c.w, unix.EPOLLIN)
	}
}

// close closes a connection. It detaches the client's streams, and kills the processes that must
// not outlive the client.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	l := c.l
	l.poll.remove(c.w)
	_ = unix.Close(c.fd)
	for i, other := range l.conns {
		if other == c {
			l.conns = append(l.conns[:i], l.conns[i+1:]...)
			break
		}
	}
	for _, o := range c.queue {
		closeFiles(o.files)
	}
	c.queue = nil
	for handle, id := range c.handles {
		if k := l.containers[id]; k != nil {
			p := k.pump
			p.enqueue(work{f: func() { p.detach(handle) }})
		}
	}
	for _, p := range l.processes {
		if p.conn == c && p.m.Flags&wire.FlagKillWithClient != 0 {
			p.kill()
		}
	}
}
