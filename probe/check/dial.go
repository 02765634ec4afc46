package check

import (
	"context"
	"net"
)

// Dial opens a TCP connection like the checks do. Unless graceful is set, Close
// resets it, which leaves no TIME_WAIT (RFC 9293, 3.10.4 and the SO_LINGER of
// socket(7) with a time of 0).
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
