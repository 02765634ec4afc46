package hostports

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// States of listening sockets (tcp_states.h): TCP and SCTP sockets are in stateListen, UDP
// sockets without a peer in stateClosed.
const (
	stateClosed = 7
	stateListen = 10
)

// Sizes of the messages (linux/inet_diag.h).
const (
	diagRequest  = 56 // bytes of struct inet_diag_req_v2
	diagReply    = 72 // bytes of struct inet_diag_msg
	diagDeadline = 2 * time.Second
)

// listener is a socket on which a process of the node receives packets or connections.
type listener struct {
	addr  netip.Addr
	inode uint32
}

// listenerOf finds a socket, in the network namespace of the calling thread, that would
// lose its packets if the claim were granted. It ignores sockets with an inode in skip.
func listenerOf(c Claim, skip map[uint32]bool) (l listener, found bool, err error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return l, false, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(diagDeadline)); err != nil {
		return l, false, err
	}
	families := []uint8{unix.AF_INET6} // a socket on [::] receives packets of both families
	if !c.V6 {
		families = []uint8{unix.AF_INET, unix.AF_INET6}
	}
	states := uint32(1 << stateListen)
	if c.Proto == UDP {
		states = 1 << stateClosed
	}
	for _, family := range families {
		req := make([]byte, diagRequest)
		// The first two bytes are the family and the protocol, the second word the mask of states.
		req[0], req[1] = family, c.Proto
		binary.NativeEndian.PutUint32(req[4:], states)
		replies, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}, Data: req,
		})
		// A protocol whose module is not loaded has no sockets.
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
			continue
		}
		if err != nil {
			return l, false, fmt.Errorf("list sockets: %w", err)
		}
		for _, r := range replies {
			addr, port, inode, ok := parseDiag(r.Data)
			if ok && port == c.Port && !skip[inode] && c.takesFrom(addr) {
				return listener{addr, inode}, true, nil
			}
		}
	}
	return l, false, nil
}

// takesFrom reports whether the host port of the claim would get packets that a socket with this
// address receives now.
func (c Claim) takesFrom(socket netip.Addr) bool {
	// Sockets on [::1] keep their packets, since there is no NAT of that address. A
	// socket on [::] receives IPv4 packets as well, unless it disabled that, which
	// is not visible here.
	if socket.IsLoopback() && socket.Is6() || socket.Is4() && c.V6 || socket.Is6() && !socket.IsUnspecified() && !c.V6 {
		return false
	}
	// A claim of all addresses takes packets from every socket. A socket on all addresses
	// loses packets to every claim.
	return !c.Addr.IsValid() || socket.IsUnspecified() || c.Addr == socket
}

// parseDiag returns the address, the port and the inode of a socket in a reply of the
// kernel. ok is false if the reply is truncated or of an unknown address family.
func parseDiag(b []byte) (addr netip.Addr, port uint16, inode uint32, ok bool) {
	if len(b) < diagReply {
		return addr, 0, 0, false
	}
	inode = binary.NativeEndian.Uint32(b[diagReply-4:])
	// Source port and address of struct inet_diag_sockid, in network byte order.
	port = binary.BigEndian.Uint16(b[4:])
	switch b[0] {
	case unix.AF_INET:
		addr, ok = netip.AddrFromSlice(b[8:12])
	case unix.AF_INET6:
		addr, ok = netip.AddrFromSlice(b[8:24])
		// A dual-stack socket may show an IPv4 address in IPv6 form.
		addr = addr.Unmap()
	}
	return addr, port, inode, ok
}
