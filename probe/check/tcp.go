package check

import (
	"context"
	"net"
	"strconv"
)

// TCP checks that a server accepts connections.
type TCP struct {
	Host string // a name or an address, IPv6 without brackets
	Port int
	// Graceful closes the connection with a FIN instead of a reset.
	Graceful bool
}

// Check connects and closes the connection. A failed connect is a Failure; it never
// returns an error.
func (t TCP) Check(ctx context.Context) (Outcome, string, error) {
	c, err := Dial(ctx, net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.Graceful)
	if err != nil {
		return Failure, err.Error(), nil //nolint:nilerr // refusing is the answer
	}
	_ = c.Close() // the connection was open, which is the result
	return Success, "", nil
}
