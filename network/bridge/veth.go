package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// podIfname is the name that CRI runtimes give to the interface of a pod.
const podIfname = "eth0"

// addVeth creates a veth: one end is a port of the bridge, up; the other end is eth0 of
// a namespace, down. setPort has to be called before the pod sends.
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
	_, err := add.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// setPort changes the defaults of a bridge port. In hairpin mode a pod can reach
// itself by its own host port: the bridge would otherwise not send a packet back to
// the port from which it came. The bridge learns no address from the port, sends it no
// frames for unknown addresses, and knows that the pod's MAC address is there.
func (l *links) setPort(name string, mac net.HardwareAddr) error {
	set := l.request(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	set.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	set.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	port := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	port.AddRtAttr(nl.IFLA_INFO_SLAVE_KIND, nl.NonZeroTerminated("bridge"))
	data := port.AddRtAttr(nl.IFLA_INFO_SLAVE_DATA, nil)
	data.AddRtAttr(nl.IFLA_BRPORT_MODE, []byte{1})
	data.AddRtAttr(nl.IFLA_BRPORT_LEARNING, []byte{0})
	data.AddRtAttr(nl.IFLA_BRPORT_UNICAST_FLOOD, []byte{0})
	set.AddData(port)
	if _, err := set.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return err
	}
	index, err := indexOf(l.sockets[unix.NETLINK_ROUTE].Socket.GetFd(), name)
	if err != nil {
		return err
	}
	// Sticky, as frames at other ports would move a static entry (Linux 5.0; earlier
	// kernels ignore the flag).
	return l.h.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER | ntfSticky, HardwareAddr: mac,
	})
}

// indexOf returns the index of an interface in the network namespace of a socket, without
// asking for all that the kernel knows of the interface.
func indexOf(fd int, name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, fmt.Errorf("index of %s: %w", name, err)
	}
	return int(request.Uint32()), nil
}

// ntfSticky is NTF_STICKY of linux/neighbour.h.
const ntfSticky = 1 << 6

// settle returns when the kernel has noticed that a link is up. It does so later
// otherwise, and drops the first packets to the pod: nothing delays them, since no
// neighbour has to be found. A failure has no other effect, and is ignored.
func (l *links) settle(name string) {
	// Asking for the state of a link handles its pending events (ETHTOOL_GLINK).
	const glink = 0xa
	value := struct{ cmd, data uint32 }{cmd: glink}
	request := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], name)
	fd := l.sockets[unix.NETLINK_ROUTE].Socket.GetFd()
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
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
				// The link-local address follows from the MAC address: see senders.
				all["disable_ipv6"], all["addr_gen_mode"] = "0", "0"
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
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		index, err := indexOf(fd, podIfname)
		if err != nil {
			return err
		}
		link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
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
			// Permanent: no answer of another pod replaces the node.
			if err := h.NeighSet(neighbour(index, gw, macOf(gateway(p.IPv4)))); err != nil {
				return fmt.Errorf("add neighbour %s: %w", gw, err)
			}
			if err := h.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gw.AsSlice(), Dst: everywhere(gw)}); err != nil {
				return fmt.Errorf("add default route by %s: %w", gw, err)
			}
		}
		return nil
	})
}

// everywhere returns the destination of the default route, in the address family of like.
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

// neighbour is a permanent entry: who has an address on a link.
func neighbour(link int, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: link, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}
}

// addNeighbours tells the node who has the addresses of pods. It does not ask, and no
// answer replaces an entry. The MAC address follows from the address, so that an entry
// that is left over is right for the next pod.
func (l *links) addNeighbours(bridge int, pods ...plan) error {
	for _, p := range pods {
		for _, addr := range p.ips() {
			if err := l.h.NeighSet(neighbour(bridge, addr, macOf(p.IPv4.Addr()))); err != nil {
				return fmt.Errorf("add neighbour %s: %w", addr, err)
			}
		}
	}
	return nil
}

// removeNeighbours removes the entries. Missing ones are a success.
func (l *links) removeNeighbours(bridge int, p plan) error {
	for _, addr := range p.ips() {
		// ENODEV: the bridge is gone, and its entries with it.
		if err := l.h.NeighDel(neighbour(bridge, addr, nil)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove neighbour %s: %w", addr, err)
		}
	}
	return nil
}

// join makes veths ports of the bridge again. A bridge that was removed and made anew
// has no ports. A pod's interface that is missing is skipped: its TearDown will not
// find it either. With all, ports of the bridge get their settings as well, such as
// those of an agent of another version.
func (l *links) join(master int, pods []plan, all bool) error {
	var errs []error
	for _, p := range pods {
		link, err := l.find(p.Veth)
		if err != nil || link == nil || link.Type() != "veth" {
			errs = append(errs, err)
			continue
		}
		strange := link.Attrs().MasterIndex != master
		if strange {
			errs = append(errs, l.h.LinkSetMasterByIndex(link, master))
		}
		// The MAC address of a damaged record is not known: its port stays as it is.
		if (strange || all) && p.IPv4.IsValid() {
			errs = append(errs, l.setPort(p.Veth, macOf(p.IPv4.Addr())), l.addNeighbours(master, p))
		}
		if link.Attrs().Flags&net.FlagUp == 0 {
			errs = append(errs, l.h.LinkSetUp(link))
		}
	}
	return errors.Join(errs...)
}
