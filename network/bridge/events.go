package bridge

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A change is what events of the kernel come to: what has to be looked at.
type change uint8

const (
	changedTable  change = 1 << iota // somebody else changed the table
	changedBridge                    // the bridge, its addresses or a pod's interface
	changedRoutes                    // something may overlap the subnets
	changedRules                     // chains or rules of others
	unsure                           // nobody knows whether the table was changed
	complete                         // all events of one transaction have come
)

// What may have changed when events were lost.
const (
	lostRules  = unsure | changedRules
	lostRoutes = changedBridge | changedRoutes
)

// watched is what events are compared with.
type watched struct {
	table   string
	bridge  string
	index   uint32 // of the bridge, 0 if there is none
	subnets []netip.Prefix
	own     func(port uint32) bool
	veth    func(name string) bool // of a pod that is attached
}

// ofRules reads an event of nftables.
func (w watched) ofRules(m netlink.Message) change {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < 4 {
		return 0
	}
	kind := uint16(m.Header.Type & 0xff)
	if kind == unix.NFT_MSG_NEWGEN {
		return complete
	}
	if w.own(m.Header.PID) {
		return 0
	}
	// The first attribute of all the others is the name of the table.
	const nameOfTable = 1
	ad, err := netlink.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return 0
	}
	for ad.Next() {
		if ad.Type() == nameOfTable && m.Data[0] == unix.NFPROTO_INET && ad.String() == w.table {
			return changedTable
		}
	}
	switch kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELTABLE:
		return changedRules
	}
	return 0
}

// ofRoutes reads an event of rtnetlink, each of which is complete.
func (w watched) ofRoutes(m netlink.Message) change { return w.ofNode(m) | complete }

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

// ofSettings asks whether settings of all interfaces were changed, such as
// forwarding.
func ofSettings(m netlink.Message) change {
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

func (w watched) ofLink(m netlink.Message) change {
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
	if name == w.bridge || binary.NativeEndian.Uint32(m.Data[4:]) == w.index && w.index != 0 {
		return changedBridge
	}
	if uint16(m.Header.Type) == unix.RTM_NEWLINK && master != w.index && w.veth(name) {
		return changedBridge
	}
	return 0
}

func (w watched) ofAddress(m netlink.Message) change {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return 0
	}
	if w.index != 0 && binary.NativeEndian.Uint32(m.Data[4:]) == w.index {
		return changedBridge
	}
	return w.overlaps(m.Data[0], m.Data[1], m.Data[unix.SizeofIfAddrmsg:], unix.IFA_ADDRESS)
}

func (w watched) ofRoute(m netlink.Message) change {
	if len(m.Data) < unix.SizeofRtMsg {
		return 0
	}
	return w.overlaps(m.Data[0], m.Data[1], m.Data[unix.SizeofRtMsg:], unix.RTA_DST)
}

// overlaps asks whether an address with so many bits is near a subnet. What cannot
// be read is taken to be.
func (w watched) overlaps(family, bits byte, attrs []byte, kind uint16) change {
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
