package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	bridgeAlias = "nodewright bridge" // marks the bridge as ours
	// defaultMTU is the MTU of Ethernet (IEEE 802.3).
	defaultMTU = 1500
	minMTU     = 576   // minimum for every host (RFC 791)
	minMTU6    = 1280  // minimum for every link (RFC 8200)
	maxMTU     = 65535 // of a veth and of a bridge
)

// oursBridge reports whether this package created a link: it is a bridge with our
// alias. If the agent was killed before it set the alias, the bridge has no alias, has
// our form of MAC address, and is down. A bridge that is up without the alias belongs
// to another program, since the alias is set before a bridge is brought up.
func oursBridge(link netlink.Link) bool {
	a := link.Attrs()
	if link.Type() != "bridge" {
		return false
	}
	return a.Alias == bridgeAlias || a.Alias == "" && len(a.HardwareAddr) == 6 && a.HardwareAddr[0] == 0x0a && a.HardwareAddr[1] == 0x58 && a.Flags&net.FlagUp == 0
}

// errForeign means that another program's link has the name of the bridge: such
// links are never changed.
var errForeign = errors.New("a device with this name exists and was not created by this agent")

// bridgeSpec is the wanted state of the bridge.
type bridgeSpec struct {
	name            string
	mtu             int // MTU of a new bridge
	subnet, subnet6 netip.Prefix
}

// ensureBridge creates or repairs the bridge, and returns its index. A bridge in the wanted state
// is not changed. It is called again after events, and when the set-up of a pod finds no bridge.
// The caller holds the gate, except for the bridge of the probe.
func (l *links) ensureBridge(s bridgeSpec) (int, error) {
	link, err := l.find(s.name)
	if err != nil {
		return 0, fmt.Errorf("find bridge %s: %w", s.name, err)
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		// The address is fixed. Otherwise the bridge would have the lowest address of its ports,
		// which would change with each pod, and pods would have a wrong neighbour entry.
		attrs.Name, attrs.MTU, attrs.HardwareAddr = s.name, s.mtu, macOf(gateway(s.subnet))
		err := l.may("bridge")
		if err == nil {
			err = l.h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		}
		// Another process created a link with this name; the next round checks it.
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return 0, fmt.Errorf("add bridge %s: %w", s.name, err)
		}
		if link, err = l.h.LinkByName(s.name); err != nil {
			return 0, fmt.Errorf("find bridge %s: %w", s.name, err)
		}
	}
	atPoint("a bridge")
	if !oursBridge(link) {
		return 0, fmt.Errorf("bridge %s: %w", s.name, errForeign)
	}
	// A killed agent may have left the bridge without the alias. The alias is set before anything
	// else, so that the next agent recognizes the bridge.
	if link.Attrs().Alias == "" {
		if err := l.h.LinkSetAlias(link, bridgeAlias); err != nil {
			return 0, fmt.Errorf("mark bridge %s: %w", s.name, err)
		}
	}
	if link.Attrs().Group != deviceGroup {
		if err := l.h.LinkSetGroup(link, deviceGroup); err != nil {
			return 0, fmt.Errorf("set group of bridge %s: %w", s.name, err)
		}
	}
	index := link.Attrs().Index
	// Set before the bridge is up: pods must not send router advertisements to the node.
	if err := withinNetns(l.ns, func() error { return bridgeSysctls(s) }); err != nil {
		return 0, fmt.Errorf("set up bridge %s: %w", s.name, err)
	}
	if mac := macOf(gateway(s.subnet)); link.Attrs().HardwareAddr.String() != mac.String() {
		if err := l.h.LinkSetHardwareAddr(link, mac); err != nil {
			return 0, fmt.Errorf("set address of bridge %s: %w", s.name, err)
		}
	}
	// Added before the bridge is up, so that the routes of the subnet are added with it.
	if err := l.ensureAddresses(link, s); err != nil {
		return 0, fmt.Errorf("set addresses of bridge %s: %w", s.name, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := l.h.LinkSetUp(link); err != nil {
			return 0, fmt.Errorf("bring bridge %s up: %w", s.name, err)
		}
	}
	return index, nil
}

// trustNobody has the IPv6 settings of both ends of the pods' network: router advertisements and
// redirects of pods are ignored, and no duplicate address detection delays an address.
var trustNobody = map[string]string{"accept_ra": "0", "accept_redirects": "0", "accept_dad": "0"}

// bridgeSysctls writes the settings of the bridge in the network namespace of the calling thread.
// A setting that has the right value already is not written.
func bridgeSysctls(s bridgeSpec) error {
	// Pods answer on host ports of 127.0.0.1. Without this setting the kernel would drop the
	// packets as martians (Documentation/networking/ip-sysctl.rst). Rules drop such packets if pods
	// forge them.
	if err := writeSysctl("ipv4/conf/"+s.name+"/route_localnet", "1"); err != nil {
		return err
	}
	// Without IPv6 in the kernel the files are missing, and nothing has to be
	// protected.
	if !hasIPv6() {
		return nil
	}
	all := maps.Clone(trustNobody)
	if s.subnet6.IsValid() {
		all["disable_ipv6"] = "0"
	}
	for name, value := range all {
		if err := writeSysctl("ipv6/conf/"+s.name+"/"+name, value); err != nil {
			return err
		}
	}
	return nil
}

// ensureAddresses gives the bridge the gateways' addresses, and removes all others
// except link-local ones. Old addresses are removed first: they may belong to a former
// subnet, whose route would remain.
func (l *links) ensureAddresses(link netlink.Link, s bridgeSpec) error {
	want := map[netip.Prefix]bool{}
	for _, subnet := range []netip.Prefix{s.subnet, s.subnet6} {
		if subnet.IsValid() {
			want[netip.PrefixFrom(gateway(subnet), subnet.Bits())] = true
		}
	}
	have, err := l.addresses(link)
	if err != nil {
		return err
	}
	for _, a := range have {
		addr, ok := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		if p := netip.PrefixFrom(addr.Unmap(), bits); ok && want[p] {
			delete(want, p)
			// The kernel adds a link-local IPv6 address, which the neighbour discovery of pods
			// needs.
		} else if ok && !addr.IsLinkLocalUnicast() {
			if err := l.h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return err
			}
		}
	}
	for p := range want {
		if err := l.h.AddrAdd(link, addrOf(p)); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// defaultRouteMTU returns the MTU of the interface of the default route, or 1500. Of several
// default routes, the one with the smallest metric is used, as for packets. After an error it
// returns 1500, so that no pod fails because of it.
func (l *links) defaultRouteMTU() int {
	mtu, metric, found := defaultMTU, 0, false
	routes, _ := l.h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	for _, r := range routes {
		// Some versions of the library return a nil destination for a default
		// route, others one of zero bits.
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if found && r.Priority >= metric {
			continue
		}
		// A link with less than the smallest MTU of IPv4, such as an unconfigured
		// tunnel, is ignored.
		if link, err := l.h.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU >= minMTU {
			mtu, metric, found = min(link.Attrs().MTU, maxMTU), r.Priority, true
		}
	}
	return mtu
}
