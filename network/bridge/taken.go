package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxTaken limits the memory. Because of near it is practically never reached.
const maxTaken = 1 << 16 // routes and addresses that are looked at

// taken returns the ranges that a subnet must not overlap: the addresses of the node and the
// routes of all tables. Those of the bridge itself are left out, since they exist after a restart
// of the agent. A router may have a million routes, so only ranges that overlap a prefix in near
// are returned.
func (l *links) taken(bridge string, near ...netip.Prefix) ([]taken, error) {
	var all []taken
	byIndex := map[int]string{}
	list, err := l.h.LinkList()
	// Names are only used in messages, so an incomplete list is sufficient.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range list {
		byIndex[link.Attrs().Index] = link.Attrs().Name
	}
	// All tables are read, since VPNs have routes in tables of their own. The library passes routes
	// one by one, without collecting them.
	err = l.h.RouteListFilteredIter(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		dev := byIndex[r.LinkIndex]
		p, err := prefixOf(r.Dst)
		if err != nil || dev == bridge || !overlapsAny(p, near) || len(all) == maxTaken {
			return true
		}
		by := "route " + p.String()
		if dev != "" {
			by += " dev " + dev
		}
		if r.Table != unix.RT_TABLE_MAIN {
			by += fmt.Sprintf(" table %d", r.Table)
		}
		all = append(all, taken{p, by})
		return true
	})
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	// Addresses have routes in table local, but an interface that is down does not.
	addrs, err := l.addresses(nil)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		dev := byIndex[a.LinkIndex]
		p, err := prefixOf(a.IPNet)
		if err != nil || dev == bridge || !overlapsAny(p, near) {
			continue
		}
		all = append(all, taken{p.Masked(), "address " + p.String() + " of " + dev})
	}
	return all, nil
}

// overlapsAny reports whether a prefix overlaps one in near. Invalid prefixes overlap nothing.
func overlapsAny(p netip.Prefix, near []netip.Prefix) bool {
	return slices.ContainsFunc(near, func(n netip.Prefix) bool { return n.Overlaps(p) })
}

// localAddresses returns the addresses of the node, of all interfaces.
func (l *links) localAddresses() (map[netip.Addr]bool, error) {
	addrs, err := l.addresses(nil)
	if err != nil {
		return nil, err
	}
	all := map[netip.Addr]bool{}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			all[addr.Unmap()] = true
		}
	}
	return all, nil
}
