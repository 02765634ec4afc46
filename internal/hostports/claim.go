// Package hostports reserves the host ports of pods, so that neither a process of the node nor
// another pod can use them.
package hostports

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrTaken means that the port is in use by a process of the node, another owner or the
// agent itself. ErrLimit means that this process may not open more sockets.
var (
	ErrTaken = errors.New("taken")
	ErrLimit = errors.New("too many sockets")
)

// Numbers of protocols.
const (
	TCP  = 6
	UDP  = 17
	SCTP = 132 // needs a kernel module
)

// Claim is a port of the node in one address family.
type Claim struct {
	V6    bool
	Addr  netip.Addr // the zero value means all addresses of the node
	Proto uint8
	Port  uint16
}

// String returns the protocol, the port and the address for messages.
func (c Claim) String() string {
	addr := "every address of the node"
	if c.Addr.IsValid() {
		addr = c.Addr.String()
	}
	return fmt.Sprintf("%s %d on %s", protoName(c.Proto), c.Port, addr)
}

// Proto returns the number of the protocol tcp, udp or sctp. ok is false for other names.
func Proto(name string) (proto uint8, ok bool) {
	switch name {
	case "tcp":
		return TCP, true
	case "udp":
		return UDP, true
	case "sctp":
		return SCTP, true
	}
	return 0, false
}

func protoName(proto uint8) string {
	for _, name := range []string{"tcp", "udp", "sctp"} {
		if p, _ := Proto(name); p == proto {
			return name
		}
	}
	return fmt.Sprint(proto)
}

// Claims returns the claims for a host port. An invalid addr means all addresses of both
// families, an unspecified one (0.0.0.0 or ::) all addresses of its family.
func Claims(proto uint8, addr netip.Addr, port uint16) []Claim {
	addr = addr.Unmap().WithZone("")
	switch {
	case !addr.IsValid():
		return []Claim{{Proto: proto, Port: port}, {V6: true, Proto: proto, Port: port}}
	case addr.IsUnspecified():
		return []Claim{{V6: addr.Is6(), Proto: proto, Port: port}}
	}
	return []Claim{{V6: addr.Is6(), Addr: addr, Proto: proto, Port: port}}
}

// refusal is an error with its own text that wraps ErrTaken or ErrLimit.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Errorf(format, args...).Error()}
}
