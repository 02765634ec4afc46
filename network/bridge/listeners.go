package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// States of sockets (tcp_states.h): listening ones. A UDP socket that is not
// connected is in state closed.
const (
	stateClosed = 7
	stateListen = 10
)

// Sizes of the messages (linux/inet_diag.h).
const (
	diagRequest  = 56 // bytes of struct inet_diag_req_v2
	diagReply    = 72 // of struct inet_diag_msg, all of its constant part
	diagDeadline = 2 * time.Second
)

// A listener is a socket that a process of the node receives on.
type listener struct {
	claim
	inode uint32
}

// listeners returns the sockets of the node that would lose their packets to one of the
// claims, at most one for each port. With an error, found has the results before it.
func listeners(ns *os.File, all []forward) ([]listener, error) {
	// Each is reported once, though several sockets may have the port.
	wanted := map[claim]bool{} // without addresses
	kinds := map[[2]uint8]bool{}
	for _, f := range all {
		one := f.claim
		one.addr = netip.Addr{}
		wanted[one] = true
		af := uint8(unix.AF_INET)
		if f.v6 {
			af = unix.AF_INET6
		}
		kinds[[2]uint8{af, f.proto}] = true
		kinds[[2]uint8{unix.AF_INET6, f.proto}] = true // a socket of [::] takes both
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{NetNS: int(ns.Fd())})
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(diagDeadline)); err != nil {
		return nil, err
	}
	var found []listener
	for kind := range kinds {
		// A server's UDP socket is in state closed, as it has no peer.
		states := uint32(1 << stateListen)
		if kind[1] == unix.IPPROTO_UDP {
			states = 1 << stateClosed
		}
		req := make([]byte, diagRequest)
		// Family and protocol are the first two bytes, the mask of states the second
		// word.
		req[0], req[1] = kind[0], kind[1]
		binary.NativeEndian.PutUint32(req[4:], states)
		replies, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}, Data: req,
		})
		// A protocol whose module is not loaded has no sockets.
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
			continue // no such sockets in this kernel
		}
		if err != nil {
			return found, fmt.Errorf("list sockets: %w", err)
		}
		for _, r := range replies {
			addr, port, inode, ok := parseDiag(r.Data)
			if !ok {
				continue
			}
			for f := range wanted {
				if f.proto == kind[1] && f.port == port && matches(f, addr, all) {
					found = append(found, listener{claim{v6: f.v6, addr: addr, proto: f.proto, port: port}, inode})
					delete(wanted, f)
				}
			}
		}
	}
	return found, nil
}

// matches reports whether the claim would take packets from a socket with this
// address. If c has no address, the addresses of all similar claims are checked.
func matches(c claim, socket netip.Addr, all []forward) bool {
	// Sockets on [::1] keep their packets, since there is no NAT of that address. A
	// socket on [::] receives IPv4 packets as well, unless it disabled that, which
	// is not visible here.
	if socket.IsLoopback() && socket.Is6() || socket.Is4() && c.v6 || socket.Is6() && !socket.IsUnspecified() && !c.v6 {
		return false
	}
	for _, f := range all {
		// A claim of all addresses takes from every socket; a socket of all addresses
		// loses to every claim.
		if f.v6 == c.v6 && f.proto == c.proto && f.port == c.port && (!f.addr.IsValid() || socket.IsUnspecified() || f.addr == socket) {
			return true
		}
	}
	return false
}

// parseDiag reads which port a socket has, and its inode. ok is false for an answer that
// is cut.
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
