package server

import (
	"net"
	"sync"

	"github.com/nodewright/nodewright/server/internal/source"
)

// hosts is how many hosts may have all the connections that one may have. Eight hosts
// with all their connections are an attack, or a mistake, and not a cluster.
const hosts = 8

// conns is a listener that closes connections beyond its limits. They are far above
// the needs of requests and streams: they keep clients that only connect from using
// up the process's open files. http.Server has no limit.
type conns struct {
	net.Listener
	limit, one int // in all, and of one host

	// mu guards n and from.
	mu   sync.Mutex
	n    int
	from map[string]int
}

// bounded limits the connections of a port. The limit is twice the need of one
// host, as connections are kept open between requests.
func (s *Server) bounded(l net.Listener) net.Listener {
	one := 2 * (s.cfg.Requests + s.cfg.Streams)
	return &conns{Listener: l, limit: hosts * one, one: one, from: map[string]int{}}
}

// Accept waits for a connection within the limits, until the listener is closed.
func (l *conns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		// A test's listener may have no addresses: all its connections are of one host
		// then.
		host := ""
		if addr := c.RemoteAddr(); addr != nil {
			host = source.Of(addr.String())
		}
		// A connection may be closed more than once, and gives back one place.
		if l.enter(host) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		// Closed at once and without a word: an answer would cost more than the
		// connection.
		_ = c.Close()
	}
}

// enter takes a place for a connection of a host, and reports whether there was one.
func (l *conns) enter(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n >= l.limit || l.from[host] >= l.one {
		return false
	}
	l.n++
	l.from[host]++
	return true
}

// leave gives back a place. A host without connections is forgotten, so that the map
// does not grow with every address ever seen.
func (l *conns) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	leave func()
}

// Close closes the connection and frees its slot.
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
