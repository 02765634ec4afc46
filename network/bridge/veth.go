package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// podIfname is the name that CRI runtimes give to the interface of a pod.
const podIfname = "eth0"

// addVeth creates a veth: one end is a port of the bridge, up, with hairpin mode if
// requested; the other end is eth0 of a namespace, down. Both requests are sent at
// once.
func (l *links) addVeth(name string, master, mtu int, pod *os.File, mac net.HardwareAddr) error {
	if err := l.may("veth"); err != nil {
		return err
	}
	// EXCL: an interface of that name is an EEXIST, and never changed.
	add := l.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	// Both ends in one request, with the pod's end in its namespace from the
	// beginning: it cannot remain in the node's, and its name cannot collide there.
	msg.Flags, msg.Change = unix.IFF_UP, unix.IFF_UP
	add.AddData(msg)
	add.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	add.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
	add.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master))))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(podIfname))
	peer.AddRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu)))
	// From the IPv4 address, so that an address that is used again has the same
	// neighbour entry.
	peer.AddRtAttr(unix.IFLA_ADDRESS, mac)
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(pod.Fd())))
	add.AddData(info)
	if _, err := add.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return err
	}
	atPoint("port")
	return l.setPort(name)
}

// setPort changes the defaults of a bridge port. In hairpin mode a pod can reach
// itself by its own host port: the bridge would otherwise not send a packet back to
// the port from which it came.
func (l *links) setPort(name string) error {
	set := l.request(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	set.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	set.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	port := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	port.AddRtAttr(nl.IFLA_INFO_SLAVE_KIND, nl.NonZeroTerminated("bridge"))
	port.AddRtAttr(nl.IFLA_INFO_SLAVE_DATA, nil).AddRtAttr(nl.IFLA_BRPORT_MODE, []byte{1})
	set.AddData(port)
	_, err := set.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// setUpPod gives eth0 of a pod's namespace its addresses and routes, and disables
// router and neighbour discovery. It works on a thread that enters the namespace;
// the pod's processes are not running yet.
func setUpPod(pod *os.File, p plan) error {
	return withinNetns(pod, func() error {
		// Before the interface is up, so that no router is listened to even once.
		if hasIPv6() {
			all := maps.Clone(trustNobody)
			if p.IPv6.IsValid() {
				all["disable_ipv6"] = "0"
			}
			for name, value := range all {
				if err := writeSysctl("ipv6/conf/"+podIfname+"/"+name, value); err != nil {
					return err
				}
			}
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		// The socket belongs to the pod's namespace and is closed at the end of
		// this call.
		if err := h.SetSocketTimeout(linkTimeout); err != nil {
			return err
		}
		link, err := h.LinkByName(podIfname)
		if err != nil {
			return err
		}
		if err := h.AddrAdd(link, addrOf(p.IPv4)); err != nil {
			return fmt.Errorf("add address %s: %w", p.IPv4, err)
		}
		if p.IPv6.IsValid() {
			if err := h.AddrAdd(link, addrOf(p.IPv6)); err != nil {
				return fmt.Errorf("add address %s: %w", p.IPv6, err)
			}
		}
		// Routes need an interface that is up.
		if err := h.LinkSetUp(link); err != nil {
			return err
		}
		for _, addr := range []netip.Prefix{p.IPv4, p.IPv6} {
			if !addr.IsValid() {
				continue
			}
			gw := gateway(addr)
			if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice(), Dst: everywhere(gw)}); err != nil {
				return fmt.Errorf("add default route by %s: %w", gw, err)
			}
		}
		return nil
	})
}

// everywhere is the default route's destination, in the address family of like.
func everywhere(like netip.Addr) *net.IPNet {
	n := like.BitLen()
	return &net.IPNet{IP: make(net.IP, n/8), Mask: net.CIDRMask(0, n)}
}

// ports returns this plugin's veths on a bridge. Ports with other names, added by
// other programs, are left out.
func (l *links) ports(master int, prefix string) ([]string, error) {
	all, err := l.h.LinkList()
	// A port that the list lacks is found by the next start.
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, err
	}
	var names []string
	for _, link := range all {
		if link.Type() == "veth" && link.Attrs().MasterIndex == master && isVethName(prefix, link.Attrs().Name) {
			names = append(names, link.Attrs().Name)
		}
	}
	return names, nil
}

// join makes veths ports of the bridge again. A bridge that was removed and made anew
// has no ports. A pod's interface that is missing is skipped: its TearDown will not
// find it either.
func (l *links) join(master int, veths []string) error {
	var errs []error
	for _, name := range veths {
		link, err := l.find(name)
		if err != nil || link == nil || link.Type() != "veth" {
			errs = append(errs, err)
			continue
		}
		if link.Attrs().MasterIndex != master {
			errs = append(errs, l.h.LinkSetMasterByIndex(link, master), l.setPort(name))
		}
		if link.Attrs().Flags&net.FlagUp == 0 {
			errs = append(errs, l.h.LinkSetUp(link))
		}
	}
	return errors.Join(errs...)
}
