package httpbound

import (
	"container/list"
	"net"
	"sync"

	"github.com/nodewright/nodewright/internal/source"
)

// conns is a listener with limits on its connections.
type conns struct {
	net.Listener

	limit, of, newcomers int // limits: in all, of one host, and without a request yet

	mu    sync.Mutex
	n     int            // number of connections
	from  map[string]int // number of connections by host
	fresh list.List      // *conn without a request yet, the oldest first
	idle  list.List      // *conn without a running request, the longest idle first
}

// conn is a connection. conns.mu guards its fields.
type conn struct {
	net.Conn

	of      *conns
	host    string
	at      *list.Element // in the list in; nil if the conn is in no list
	in      *list.List    // fresh or idle
	working int           // number of running requests
	closed  bool
}

// Accept returns the next connection that the limits allow. It closes other connections,
// and connections that the new one replaces. It returns an error when the listener is
// closed.
func (l *conns) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, of: l, host: hostOf(raw)}
		ok, instead := l.admit(c)
		if instead != nil {
			_ = instead.Close()
		}
		if ok {
			return c, nil
		}
		// No response: it would cost more than the connection.
		_ = raw.Close()
	}
}

// admit reports whether the limits allow a new connection, and counts it if so. If the
// limits allow it only in place of another connection, admit returns the other one, which
// the caller has to close.
func (l *conns) admit(c *conn) (ok bool, instead *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.from[c.host] >= l.of:
		instead = l.unused(func(o *conn) bool { return o.host == c.host })
	case l.n >= l.limit || l.fresh.Len() >= l.newcomers:
		instead = l.unused(func(*conn) bool { return true })
	default:
		l.enter(c)
		return true, nil
	}
	if instead == nil {
		return false, nil
	}
	l.leave(instead)
	l.enter(c)
	return true, instead
}

// unused returns a connection that has no running request and that accept accepts. It prefers the
// oldest connection that never had a request, and then the one that has been idle the longest. It
// returns nil if there is none.
func (l *conns) unused(accept func(*conn) bool) *conn {
	for _, from := range []*list.List{&l.fresh, &l.idle} {
		for e := from.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*conn); accept(c) {
				return c
			}
		}
	}
	return nil
}

func (l *conns) enter(c *conn) {
	l.n++
	l.from[c.host]++
	c.put(&l.fresh)
}

// leave removes a connection from the counts and lists. A second call does nothing.
func (l *conns) leave(c *conn) {
	if c.closed {
		return
	}
	c.closed = true
	c.put(nil)
	l.n--
	if l.from[c.host]--; l.from[c.host] == 0 {
		delete(l.from, c.host)
	}
}

// put moves a connection to the end of the list to. If to is nil, it only removes the
// connection from its list.
func (c *conn) put(to *list.List) {
	if c.at != nil {
		c.in.Remove(c.at)
	}
	c.at, c.in = nil, to
	if to != nil {
		c.at = to.PushBack(c)
	}
}

func (c *conn) begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.working++
	c.put(nil)
}

func (c *conn) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.working--; c.working == 0 && !c.closed {
		c.put(&c.of.idle)
	}
}

// Close closes the connection, which then does not count any more.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.leave(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// hostOf returns the client's host (see source.Of), or "" for a connection without an address.
func hostOf(c net.Conn) string {
	if c.RemoteAddr() == nil {
		return ""
	}
	return source.Of(c.RemoteAddr().String())
}
