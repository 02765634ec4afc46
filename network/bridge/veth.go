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
	// EXCL: if an interface has the name, the error is EEXIST, and the interface is not changed.
	add := l.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	// One request creates both ends, with the pod's end in its namespace: it never exists in the
	// node's namespace, where its name could collide.
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
	// The MAC address is derived from the IPv4 address, so that an address that is reused has the
	// same neighbour entry.
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
	// The entry is sticky: without the flag (Linux 5.0; earlier kernels ignore it), a frame at
	// another port would move it.
	return l.h.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER | ntfSticky, HardwareAddr: mac,
	})
}

// indexOf returns the index of an interface in the network namespace of a socket, without the
// interface's other attributes.
func indexOf(fd int, name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, fmt.Errorf("read index of %s: %w", name, err)
	}
	return int(request.Uint32()), nil
}

// ntfSticky is NTF_STICKY of linux/neighbour.h.
const ntfSticky = 1 << 6

// settle makes the kernel notice at once that a link is up. Otherwise it may notice later, and
// drop the first packets to the pod. Errors are ignored.
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

// setUpPod configures the addresses and routes of eth0 in a pod's namespace, and disables router
// and neighbour discovery. It works on a thread that enters the namespace; the pod's processes are
// not running yet.
func setUpPod(pod *os.File, p plan) error {
	return withinNetns(pod, func() error {
		// Set before the interface is up, so that no router advertisement is accepted.
		if hasIPv6() {
			all := maps.Clone(trustNobody)
			if p.IPv6.IsValid() {
				// The link-local address is derived from the MAC address: see senders.
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
			// The entry is permanent, so that no other pod can replace the node's address by its
			// own.
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

// everywhere returns the destination of the default route, 0.0.0.0/0 or ::/0, in the address
// family of addr.
func everywhere(addr netip.Addr) *net.IPNet {
	n := addr.BitLen()
	return &net.IPNet{IP: make(net.IP, n/8), Mask: net.CIDRMask(0, n)}
}

// ports returns this plugin's veths on a bridge. Ports with other names, added by
// other programs, are left out.
func (l *links) ports(master int, prefix string) ([]string, error) {
	all, err := l.h.LinkList()
	// A port that is missing in the list is found at the next start.
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

// neighbour returns a permanent entry: the MAC address of an IP address on a link.
func neighbour(link int, addr netip.Addr, mac net.HardwareAddr) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: link, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}
}

// addNeighbours adds the addresses of pods to the node's neighbour table. The kernel sends no
// requests for these entries, and no reply replaces one. An entry that is left over is right for
// the next pod with this IP address, since the MAC address is derived from the IP address.
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

// removeNeighbours removes the entries. Missing entries are no error.
func (l *links) removeNeighbours(bridge int, p plan) error {
	for _, addr := range p.ips() {
		// ENODEV: the bridge is gone, and its entries with it.
		if err := l.h.NeighDel(neighbour(bridge, addr, nil)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove neighbour %s: %w", addr, err)
		}
	}
	return nil
}

// join makes veths ports of the bridge again: a bridge that was removed and created again has no
// ports. A missing interface of a pod is skipped, as in TearDown. If all is true, interfaces that
// are ports already get the settings of setPort too, since an agent of another version may have
// set other values.
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
		// The MAC address of a pod with a damaged record is unknown, so its port is not changed.
		if (strange || all) && p.IPv4.IsValid() {
			errs = append(errs, l.setPort(p.Veth, macOf(p.IPv4.Addr())), l.addNeighbours(master, p))
		}
		if link.Attrs().Flags&net.FlagUp == 0 {
			errs = append(errs, l.h.LinkSetUp(link))
		}
	}
	return errors.Join(errs...)
}
