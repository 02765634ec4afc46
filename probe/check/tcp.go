package check

import (
	"context"
	"net"
	"strconv"
)

// TCP checks that a server takes connections.
type TCP struct {
	Host string // a name or an address, IPv6 without brackets
	Port int
	// Graceful ends the connection in order and not with a reset.
	Graceful bool
}

// Check connects and hangs up. Whatever keeps it from connecting is a Failure;
// it never returns an error.
func (t TCP) Check(ctx context.Context) (Outcome, string, error) {
	c, err := Dial(ctx, net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.Graceful)
	if err != nil {
		return Failure, err.Error(), nil //nolint:nilerr // refusing is the answer
	}
	_ = c.Close() // it was open, and that is all that was asked
	return Success, "", nil
}
