package bridge

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A change is a set of bits. Each bit means that objects of one kind may have changed, according
// to events of the kernel. Several events of one kind are handled together.
type change uint8

const (
	changedTable  change = 1 << iota // another program changed the table
	changedBridge                    // the bridge, its addresses or a pod's interface
	changedRoutes                    // something may overlap the subnets
	changedRules                     // chains or rules of other programs
	unsure                           // it is not known whether the table was changed
	complete                         // all events of one transaction have arrived
)

// The possible changes after lost events.
const (
	lostRules  = unsure | changedRules
	lostRoutes = changedBridge | changedRoutes
)

// watched has the values with which events are compared. It is a copy, since the goroutine that
// reads events holds no lock.
type watched struct {
	table   string
	bridge  string
	index   uint32 // index of the bridge, 0 if there is none
	subnets []netip.Prefix
	// own and veth are functions that lock Plugin.mu themselves.
	own  func(port uint32) bool
	veth func(name string) bool // of a pod that is attached
}

// ofRules classifies an event of nftables. Its messages are those of "nft monitor".
// Events of this process are recognized by the netlink port of the socket that made
// the change.
func (w watched) ofRules(m netlink.Message) change {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < 4 {
		return 0
	}
	kind := uint16(m.Header.Type & 0xff)
	// The kernel sends this message after the events of each transaction, including our own.
	if kind == unix.NFT_MSG_NEWGEN {
		return complete
	}
	if w.own(m.Header.PID) {
		return 0
	}
	// The first attribute of all other messages is the name of the table.
	const nameOfTable = 1
	ad, err := netlink.NewAttributeDecoder(m.Data[4:])
	// Events are hints: if one cannot be parsed, the next check finds the change.
	if err != nil {
		return 0
	}
	for ad.Next() {
		if ad.Type() == nameOfTable && (m.Data[0] == unix.NFPROTO_INET || m.Data[0] == unix.NFPROTO_BRIDGE) && ad.String() == w.table {
			return changedTable
		}
	}
	// Changes of sets and their elements are ignored; some tools change thousands of them.
	switch kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELTABLE:
		return changedRules
	}
	return 0
}

// ofRoutes classifies an event of rtnetlink. Each such event is a transaction of its own, so
// complete is always set.
func (w watched) ofRoutes(m netlink.Message) change { return w.ofNode(m) | complete }

// ofNode classifies an event by its type.
func (w watched) ofNode(m netlink.Message) change {
	switch uint16(m.Header.Type) {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return w.ofLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return w.ofAddress(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.ofRoute(m)
	case unix.RTM_NEWNETCONF:
		return ofSettings(m)
	}
	return 0
}

// ofSettings returns the change if settings of all interfaces were changed, such as forwarding.
// Settings of single interfaces are ignored.
func ofSettings(m netlink.Message) change {
	// struct netconfmsg has one byte, filled up to 4 (linux/netconf.h).
	// NETCONFA_IFINDEX is -1 for "all".
	const (
		headerSize = 4 // struct netconfmsg, filled up
		index      = 1 // NETCONFA_IFINDEX
		all        = ^uint32(0)
	)
	if len(m.Data) < headerSize {
		return 0
	}
	ad, err := netlink.NewAttributeDecoder(m.Data[headerSize:])
	if err != nil {
		return 0
	}
	for ad.Next() {
		if b := ad.Bytes(); ad.Type() == index && len(b) == 4 && binary.NativeEndian.Uint32(b) == all {
			return changedRoutes
		}
	}
	return 0
}

// ofLink returns changedBridge if the bridge has changed or the interface of a pod was removed from
// it, and otherwise 0.
func (w watched) ofLink(m netlink.Message) change {
	// Events of family AF_BRIDGE are about ports and their states; a changed link
	// causes an ordinary event as well.
	if len(m.Data) < unix.SizeofIfInfomsg || m.Data[0] == unix.AF_BRIDGE {
		return 0
	}
	var name string
	var master uint32
	ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
	if err != nil {
		return 0
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			name = ad.String()
		case unix.IFLA_MASTER:
			if b := ad.Bytes(); len(b) == 4 {
				master = binary.NativeEndian.Uint32(b)
			}
		}
	}
	// A new link is recognized by its name, a renamed one by its index.
	if name == w.bridge || binary.NativeEndian.Uint32(m.Data[4:]) == w.index && w.index != 0 {
		return changedBridge
	}
	// A pod's interface was removed from our bridge if its master is another one. The end of the
	// interface itself is the end of the pod or a TearDown, and nothing is restored.
	if uint16(m.Header.Type) == unix.RTM_NEWLINK && master != w.index && w.veth(name) {
		return changedBridge
	}
	return 0
}

// ofAddress returns changedBridge if an address of the bridge has changed, changedRoutes if an
// address of another interface overlaps a subnet of the pods, and otherwise 0.
func (w watched) ofAddress(m netlink.Message) change {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return 0
	}
	if w.index != 0 && binary.NativeEndian.Uint32(m.Data[4:]) == w.index {
		return changedBridge
	}
	// The family and the length of the prefix are the first two bytes of struct
	// ifaddrmsg.
	return w.overlaps(m.Data[0], m.Data[1], m.Data[unix.SizeofIfAddrmsg:], unix.IFA_ADDRESS)
}

// ofRoute returns changedRoutes if a route overlaps a subnet of the pods, and otherwise 0.
func (w watched) ofRoute(m netlink.Message) change {
	if len(m.Data) < unix.SizeofRtMsg {
		return 0
	}
	// In struct rtmsg, these are the family and the bits of the destination.
	return w.overlaps(m.Data[0], m.Data[1], m.Data[unix.SizeofRtMsg:], unix.RTA_DST)
}

// overlaps returns changedRoutes if the address in the attribute kind, as a prefix of that many
// bits, overlaps a subnet of the pods. An address that cannot be parsed counts as overlapping. It
// is called for each route of a router, possibly a million, so it does not call the kernel.
func (w watched) overlaps(family, bits byte, attrs []byte, kind uint16) change {
	// A default route overlaps everything, but the subnet's route is more specific.
	if bits <= defaultRouteBits || family != unix.AF_INET && family != unix.AF_INET6 {
		return 0
	}
	ad, err := netlink.NewAttributeDecoder(attrs)
	if err != nil {
		return changedRoutes
	}
	for ad.Next() {
		if ad.Type() != kind {
			continue
		}
		addr, ok := netip.AddrFromSlice(ad.Bytes())
		if !ok {
			return changedRoutes
		}
		p, err := addr.Prefix(int(bits))
		if err != nil {
			return changedRoutes
		}
		for _, subnet := range w.subnets {
			if subnet.Overlaps(p) {
				return changedRoutes
			}
		}
	}
	return 0
}
