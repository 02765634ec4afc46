//go:build linux

package localcri

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
)

// heldListener accepts connections as heldConn, so that their end can be observed even after
// an HTTP handler has hijacked them.
type heldListener struct{ net.Listener }

func (l *heldListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: c}, nil
}

// heldConn calls ended when its client has disconnected or it is closed.
type heldConn struct {
	net.Conn
	ended atomic.Pointer[context.CancelFunc]
}

// hold returns a context that ends with the connection.
func (c *heldConn) hold(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c.ended.Store(&cancel)
	return ctx
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
	return n, err
}

func (c *heldConn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *heldConn) end() {
	if f := c.ended.Load(); f != nil {
		(*f)()
	}
}
