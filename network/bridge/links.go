package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	linkTimeout = 10 * time.Second // of one answer of rtnetlink
	// listTries limits how often a list is read again because it changed while it was read.
	listTries = 5
)

// links makes and removes interfaces of the node's network namespace. Its methods may
// be called concurrently: the sockets have locks. The sockets of rtnetlink and
// netfilter are opened once in the node's namespace, so that no call has to enter it
// again.
type links struct {
	ns      *os.File
	h       *netlink.Handle
	sockets map[int]*nl.SocketHandle // netlink sockets for requests that the library does not support

	removals removals
	// fault makes the creation of a kind of link fail, in tests.
	fault func(kind string) error
}

// may returns the error with which a test makes the creation of a kind of link fail, or nil.
func (l *links) may(kind string) error {
	if l.fault == nil {
		return nil
	}
	return l.fault(kind)
}

// newLinks opens the sockets in the namespace ns. The caller keeps the ownership of the file ns.
// All sockets have timeouts, so that no call waits forever for the kernel.
func newLinks(ns *os.File) (*links, error) {
	at := netns.NsHandle(ns.Fd())
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	l := &links{ns: ns, h: h, sockets: map[int]*nl.SocketHandle{}, removals: removals{group: newGroup()}}
	errs := []error{h.SetSocketTimeout(linkTimeout)}
	tv := unix.NsecToTimeval(linkTimeout.Nanoseconds())
	for _, family := range []int{unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER} {
		// The library opens the socket on a thread that enters ns temporarily.
		s, err := nl.GetNetlinkSocketAt(at, netns.None(), family)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("open netlink: %w", err)
		}
		l.sockets[family] = &nl.SocketHandle{Socket: s}
		errs = append(errs, s.SetReceiveTimeout(&tv), s.SetSendTimeout(&tv))
	}
	if err := errors.Join(errs...); err != nil {
		l.close()
		return nil, err
	}
	_ = h.SetSocketReceiveBufferSize(nftBuffer, true) // without the privilege it is as large as usual
	return l, nil
}

// close closes the sockets. Calls that run fail.
func (l *links) close() {
	l.h.Close()
	for _, s := range l.sockets {
		s.Close()
	}
}

// request returns a request for the sockets of the node's namespace, instead of one for the calling
// thread's namespace.
func (l *links) request(kind, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = l.sockets
	return r
}

// find returns a link. If the link does not exist, it returns nil and no error.
func (l *links) find(name string) (netlink.Link, error) {
	link, err := l.h.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	return link, err
}

// addresses returns the addresses of a link, or of all links if link is nil. A list
// that changes while it is read is read again, up to a limit.
func (l *links) addresses(link netlink.Link) (all []netlink.Addr, err error) {
	for range listTries {
		// The kernel marks a list that changed while it was read (NLM_F_DUMP_INTR): entries may be
		// missing or repeated.
		if all, err = l.h.AddrList(link, netlink.FAMILY_ALL); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

// addrOf returns an address with its subnet for netlink.
func addrOf(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		// Without this flag, duplicate address detection would delay the use of the address by a
		// second or more.
		a.Flags = unix.IFA_F_NODAD // it is given once
	}
	return a
}
