package check

import (
	"context"
	"net"
)

// Dial opens a TCP connection as the checks do. Unless graceful is set, Close resets the
// connection, so that it does not stay in TIME_WAIT (RFC 9293, 3.10.4, and SO_LINGER with a time
// of 0 in socket(7)).
func Dial(ctx context.Context, addr string, graceful bool) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok && !graceful {
		_ = t.SetLinger(0) // without it there is a TIME_WAIT, no more
	}
	return c, nil
}
