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
	defaultMTU  = 1500
	minMTU      = 576   // what every host has to take (RFC 791)
	minMTU6     = 1280  // what every link has to carry (RFC 8200)
	maxMTU      = 65535 // of a veth and of a bridge
)

// oursBridge reports whether a link is a bridge that was made here: by its alias
// or, if the agent was killed before it set that, by its address and by nothing else
// having been done to it.
func oursBridge(link netlink.Link) bool {
	a := link.Attrs()
	if link.Type() != "bridge" {
		return false
	}
	return a.Alias == bridgeAlias || a.Alias == "" && len(a.HardwareAddr) == 6 && a.HardwareAddr[0] == 0x0a && a.HardwareAddr[1] == 0x58 && a.Flags&net.FlagUp == 0
}

var errForeign = errors.New("there is one that was not made by this agent")

// bridgeSpec is how the bridge is to be.
type bridgeSpec struct {
	name            string
	mtu             int // of a new one
	subnet, subnet6 netip.Prefix
}

// ensureBridge makes the bridge as it is to be, and returns its index. Of a bridge
// that is so already nothing is changed.
func (l *links) ensureBridge(s bridgeSpec) (int, error) {
	link, err := l.find(s.name)
	if err != nil {
		return 0, fmt.Errorf("find bridge %s: %w", s.name, err)
	}
	if link == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = s.name, s.mtu, macOf(gateway(s.subnet))
		err := l.may("bridge")
		if err == nil {
			err = l.h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		}
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
	if link.Attrs().Alias == "" {
		if err := l.h.LinkSetAlias(link, bridgeAlias); err != nil {
			return 0, fmt.Errorf("mark bridge %s: %w", s.name, err)
		}
	}
	index := link.Attrs().Index
	// Before it is up: no pod may tell the node where its routers are.
	if err := withinNetns(l.ns, func() error { return bridgeSysctls(s) }); err != nil {
		return 0, fmt.Errorf("set up bridge %s: %w", s.name, err)
	}
	if mac := macOf(gateway(s.subnet)); link.Attrs().HardwareAddr.String() != mac.String() {
		if err := l.h.LinkSetHardwareAddr(link, mac); err != nil {
			return 0, fmt.Errorf("set address of bridge %s: %w", s.name, err)
		}
	}
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

// trustNobody are the settings of IPv6 at both ends of the pods' network: no pod
// informs another or the node where the routers are, and no address is waited for.
var trustNobody = map[string]string{"accept_ra": "0", "accept_redirects": "0", "accept_dad": "0"}

func bridgeSysctls(s bridgeSpec) error {
	if err := writeSysctl("ipv4/conf/"+s.name+"/route_localnet", "1"); err != nil {
		return err
	}
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

// ensureAddresses gives the bridge the gateways' addresses, and no others but
// link-local ones.
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

// defaultRouteMTU is the MTU of the interface of the default route, or 1500.
func (l *links) defaultRouteMTU() int {
	mtu, metric, found := defaultMTU, 0, false
	routes, _ := l.h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if found && r.Priority >= metric {
			continue
		}
		if link, err := l.h.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU >= minMTU {
			mtu, metric, found = min(link.Attrs().MTU, maxMTU), r.Priority, true
		}
	}
	return mtu
}
