package bridge

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// tag is in each frame that an attacker makes up, and marker in the good one behind it.
const (
	tag    = "MADE-UP-BY-THE-ATTACKER"
	marker = "SENT-BY-THE-ATTACKER-ITSELF"
)

func ethernet(dst, src net.HardwareAddr, kind []byte, payload ...[]byte) []byte {
	return append(slices.Concat(dst, src, kind), slices.Concat(payload...)...)
}

func arp(op byte, mac net.HardwareAddr, ip, target netip.Addr) []byte {
	return append(slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, op}, mac, ip.AsSlice(), make([]byte, 6), target.AsSlice()), tag...)
}

// ipv6 makes a packet with a right checksum of its upper layer, which is at an offset of
// the payload.
func ipv6(src, dst netip.Addr, next byte, payload []byte, sum int) []byte {
	head := make([]byte, 40)
	head[0], head[6], head[7] = 0x60, next, 255
	binary.BigEndian.PutUint16(head[4:], uint16(len(payload)))
	copy(head[8:], src.AsSlice())
	copy(head[24:], dst.AsSlice())
	if sum >= 0 {
		var total uint32
		for _, b := range [][]byte{head[8:], {0, byte(len(payload))}, {0, next}, payload} {
			for i := 0; i+1 < len(b); i += 2 {
				total += uint32(binary.BigEndian.Uint16(b[i:]))
			}
			if len(b)%2 == 1 {
				total += uint32(b[len(b)-1]) << 8
			}
		}
		for total > 0xffff {
			total = total&0xffff + total>>16
		}
		binary.BigEndian.PutUint16(payload[sum:], ^uint16(total))
	}
	return append(head, payload...)
}

func udp6(src, dst netip.Addr, from, to uint16, text string) []byte {
	b := make([]byte, 8)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(text)))
	return ipv6(src, dst, unix.IPPROTO_UDP, append(b, text...), 6)
}

// neighbours makes a message of neighbour discovery. What is behind the packet is no part
// of it.
func neighbours(src, dst netip.Addr, kind byte, target netip.Addr, options ...[]byte) []byte {
	b := slices.Concat([]byte{kind, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice(), slices.Concat(options...))
	return append(ipv6(src, dst, unix.IPPROTO_ICMPV6, b, 2), tag...)
}

func macOption(kind byte, mac net.HardwareAddr) []byte { return append([]byte{kind, 1}, mac...) }

// tap sees the frames that reach an interface.
func (l *lab) tap(ns *os.File, dev string) (next func() []byte) {
	l.t.Helper()
	var fd int
	l.in(ns, func() error {
		iface, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		const all = 0x0300 // ETH_P_ALL in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		l.t.Cleanup(func() { _ = unix.Close(fd) })
		tv := unix.NsecToTimeval(testTimeout.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: iface.Index})
	})
	b := make([]byte, 64<<10)
	return func() []byte {
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				l.t.Fatalf("no frame came: %v", err)
			}
			if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			return b[:n]
		}
	}
}

// arrives sends a frame from a pod, and behind it one that is in order, and reports
// whether the first one was seen before the second.
func (l *lab) arrives(from guest, frame, good []byte, next func() []byte) bool {
	l.t.Helper()
	l.in(from.ns, func() error {
		iface, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for _, f := range [][]byte{frame, good} {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: iface.Index, Halen: 6, Addr: [8]byte{}}); err != nil {
				return err
			}
		}
		return nil
	})
	for seen := false; ; {
		got := next()
		// What is behind a packet may be cut off, and a frame of the bridge is as it was.
		if bytes.Contains(got, []byte(tag)) || len(got) > 40 && bytes.HasPrefix(frame, got) {
			seen = true
		}
		if bytes.Contains(got, []byte(marker)) {
			return seen
		}
	}
}

func (g guest) mac() net.HardwareAddr { return macOf(g.ip) }

// attack is a frame that a pod makes up.
type attack struct {
	name  string
	frame []byte
}

// attacks are the frames of evil against a pod, with the addresses of a third one.
func attacks(evil, victim, third guest, gw4, gw6 netip.Addr) []attack {
	e, v, o := evil.mac(), victim.mac(), third.mac()
	gw := macOf(gw4)
	bad := func(dst net.HardwareAddr, src net.HardwareAddr, kind []byte, payload ...[]byte) []byte {
		return ethernet(dst, src, kind, payload...)
	}
	all := netip.MustParseAddr("ff02::1")
	hop := func(p []byte) []byte { // with an extension header
		out := slices.Clone(p[:40])
		out[6] = 0
		binary.BigEndian.PutUint16(out[4:], binary.BigEndian.Uint16(p[4:])+8)
		return slices.Concat(out, []byte{p[6], 0, 1, 4, 0, 0, 0, 0}, p[40:])
	}
	return []attack{
		{"ARP for the gateway", bad(v, e, etherARP, arp(2, e, gw4, victim.ip))},
		{"ARP for a neighbour", bad(v, e, etherARP, arp(2, e, third.ip, victim.ip))},
		{"ARP request of a neighbour", bad(v, e, etherARP, arp(1, e, third.ip, victim.ip))},
		{"ARP with the MAC address of a neighbour", bad(v, e, etherARP, arp(2, o, evil.ip, victim.ip))},
		{"ARP in a frame of a neighbour", bad(v, o, etherARP, arp(2, e, evil.ip, victim.ip))},
		{"ARP of another kind", bad(v, e, etherARP, append([]byte{0, 6}, arp(2, e, evil.ip, victim.ip)[2:]...))},
		{"MAC address of a neighbour", bad(v, o, etherIPv4, udpPacket(evil.ip, victim.ip, 1, 9, tag))},
		{"MAC address of the gateway", bad(v, gw, etherIPv4, udpPacket(evil.ip, victim.ip, 1, 9, tag))},
		{"IPv4 address of a neighbour", bad(v, e, etherIPv4, udpPacket(third.ip, victim.ip, 1, 9, tag))},
		{"IPv4 address of the gateway", bad(v, e, etherIPv4, udpPacket(gw4, victim.ip, 1, 9, tag))},
		{"IPv4 address of elsewhere", bad(v, e, etherIPv4, udpPacket(netip.MustParseAddr("8.8.8.8"), victim.ip, 1, 9, tag))},
		{"no IPv4 address", bad(v, e, etherIPv4, udpPacket(netip.IPv4Unspecified(), victim.ip, 1, 9, tag))},
		{"answer of DHCP", bad(v, e, etherIPv4, udpPacket(evil.ip, victim.ip, 67, 68, tag))},
		{"VLAN", bad(v, e, []byte{0x81, 0, 0, 0}, etherIPv4, udpPacket(evil.ip, victim.ip, 1, 9, tag))},
		{"another protocol", bad(v, e, []byte{0x88, 0xb5}, []byte(tag))},
		{"spanning tree", bad(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, e, []byte{0, 60}, []byte(tag))},
		{"IPv6 address of a neighbour", bad(v, e, etherIPv6, udp6(third.ip6(), victim.ip6(), 1, 9, tag))},
		{"IPv6 address of the gateway", bad(v, e, etherIPv6, udp6(gw6, victim.ip6(), 1, 9, tag))},
		{"link-local address of a neighbour", bad(v, e, etherIPv6, udp6(linkLocal(o), victim.ip6(), 1, 9, tag))},
		{"no IPv6 address", bad(v, e, etherIPv6, udp6(netip.IPv6Unspecified(), victim.ip6(), 1, 9, tag))},
		{"answer of DHCPv6", bad(v, e, etherIPv6, udp6(linkLocal(e), victim.ip6(), 547, 546, tag))},
		{"advertisement of the gateway", bad(v, e, etherIPv6, neighbours(evil.ip6(), victim.ip6(), 136, gw6, macOption(2, e)))},
		{"advertisement of the gateway without an option", bad(v, e, etherIPv6, neighbours(evil.ip6(), victim.ip6(), 136, gw6))},
		{"advertisement of a neighbour", bad(v, e, etherIPv6, neighbours(evil.ip6(), all, 136, third.ip6(), macOption(2, e)))},
		{"advertisement with a neighbour's MAC address", bad(v, e, etherIPv6, neighbours(evil.ip6(), victim.ip6(), 136, evil.ip6(), macOption(2, o)))},
		{"advertisement with two options", bad(v, e, etherIPv6, neighbours(evil.ip6(), victim.ip6(), 136, evil.ip6(), macOption(2, e), macOption(2, o)))},
		{"advertisement behind an extension header", bad(v, e, etherIPv6, hop(neighbours(evil.ip6(), victim.ip6(), 136, gw6, macOption(2, e))))},
		{"solicitation with a neighbour's MAC address", bad(v, e, etherIPv6, neighbours(evil.ip6(), victim.ip6(), 135, victim.ip6(), macOption(1, o)))},
		{"solicitation of a neighbour", bad(v, e, etherIPv6, neighbours(third.ip6(), victim.ip6(), 135, victim.ip6(), macOption(1, e)))},
		{"router advertisement", bad(v, e, etherIPv6, neighbours(linkLocal(e), all, 134, gw6, macOption(1, e)))},
		{"router advertisement behind an extension header", bad(v, e, etherIPv6, hop(neighbours(linkLocal(e), all, 134, gw6, macOption(1, e))))},
		{"redirect", bad(v, e, etherIPv6, neighbours(linkLocal(e), victim.ip6(), 137, evil.ip6(), third.ip6().AsSlice()))},
	}
}

// suffers makes all attacks of evil on a pod and on the node, and fails on each that
// arrives. With through, it is the reverse: the attacks are real ones.
func (l *lab) suffers(p *Plugin, evil, victim, third guest, through bool) {
	l.t.Helper()
	gw4, gw6 := gateway(p.subnet), gateway(p.subnet6)
	fine := ethernet(victim.mac(), evil.mac(), etherIPv4, udpPacket(evil.ip, victim.ip, 1, 9, marker))
	next := l.tap(victim.ns, "eth0")
	for _, a := range attacks(evil, victim, third, gw4, gw6) {
		if got := l.arrives(evil, a.frame, fine, next); got != through {
			l.t.Errorf("%s arrives at a pod: %v", a.name, got)
		}
	}
	node := guest{network.Kept{Result: &network.Result{IPs: []netip.Addr{gw4, gw6}}}, l.node, gw4}
	fine = ethernet(node.mac(), evil.mac(), etherIPv4, udpPacket(evil.ip, gw4, 1, 9, marker))
	next = l.tap(l.node, p.name)
	for _, a := range attacks(evil, node, victim, gw4, gw6) {
		// The bridge itself drops frames with its own source, and does not hand these up.
		if through && (a.name == "MAC address of the gateway" || a.name == "spanning tree") {
			continue
		}
		if got := l.arrives(evil, a.frame, fine, next); got != through {
			l.t.Errorf("%s arrives at the node: %v", a.name, got)
		}
	}
}

// Whatever a pod makes up reaches nobody: before and after a restart, and when its address
// is that of a pod that has gone.
func TestAPodSendsFromItsOwnAddressesAlone(t *testing.T) {
	l := newLab(t)
	// Without the rules of IP, if bridges can give them their packets.
	l.in(l.node, func() error {
		_ = writeSysctl("bridge/bridge-nf-call-iptables", "0")
		_ = writeSysctl("bridge/bridge-nf-call-ip6tables", "0")
		return nil
	})
	cfg := Config{Subnet: netip.MustParsePrefix("10.214.0.0/29"), Subnet6: netip.MustParsePrefix("fd00:214::/64")}
	p := l.plugin(cfg)
	if !p.feat.guard {
		t.Skip("this kernel has no nf_tables of family bridge")
	}
	evil, victim, third := l.attach(p, "evil"), l.attach(p, "victim"), l.attach(p, "third")
	l.suffers(p, evil, victim, third, false)
	p.Close()
	p = l.plugin(cfg, evil.Kept, victim.Kept, third.Kept)
	l.holds(p, 0)
	l.suffers(p, evil, victim, third, false)
	// Addresses are used again, by pods with other ports.
	l.detach(p, victim)
	l.detach(p, evil)
	again := map[netip.Addr]guest{}
	for _, name := range []string{"w", "x", "y", "z"} { // the subnet has five
		g := l.attach(p, name)
		again[g.ip] = g
	}
	evil2, victim2 := again[evil.ip], again[victim.ip]
	if evil2.ns == nil || victim2.ns == nil {
		t.Fatalf("addresses %v are not used again", again)
	}
	l.suffers(p, evil2, victim2, third, false)
	l.serve(evil2.ns, "tcp", ":80", "evil")
	l.asks(victim2.ns, "tcp", evil2.ip.String()+":80", "evil", victim2.ip.String())
	l.asks(victim2.ns, "tcp", "["+evil2.ip6().String()+"]:80", "evil", victim2.ip6().String())
	l.asks(l.node, "tcp", "["+evil2.ip6().String()+"]:80", "evil", "")
	// Without the table, all of it gets through: the attacks are real ones.
	b := &batch{}
	b.delTable(unix.NFPROTO_BRIDGE, p.cfg.Table)
	if err := p.table.commit(l.ctx(), b); err != nil {
		t.Fatal(err)
	}
	l.suffers(p, evil2, victim2, third, true)
}

// The node knows where pods are without asking, and forgets it with them.
func TestTheNodeIsToldOfNobodysAddress(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
	g := l.attach(p, "a")
	entries := func() (ip, fdb int) {
		l.in(l.node, func() error {
			veth, err := netlink.LinkByName(vethName("nw", "id-a"))
			if veth != nil && err == nil {
				prot, err := netlink.LinkGetProtinfo(veth)
				if err != nil || prot.Learning || prot.Flood {
					t.Errorf("port %+v, %v; want neither learning nor flooding", prot, err)
				}
				list, err := netlink.NeighList(veth.Attrs().Index, unix.AF_BRIDGE)
				if err != nil {
					return err
				}
				for _, n := range list {
					if n.HardwareAddr.String() == g.mac().String() && n.State == netlink.NUD_NOARP && n.Vlan == 0 { // a kernel with VLANs has one more for each
						fdb++
					}
				}
			}
			for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
				list, err := netlink.NeighList(p.index, family)
				if err != nil {
					return err
				}
				for _, n := range list {
					if n.State == netlink.NUD_PERMANENT && n.HardwareAddr.String() == g.mac().String() {
						ip++
					}
				}
			}
			return nil
		})
		return ip, fdb
	}
	if ip, fdb := entries(); ip != 2 || fdb != 1 {
		t.Errorf("%d neighbours, %d addresses of the bridge; want 2, 1", ip, fdb)
	}
	l.in(g.ns, func() error {
		for _, gw := range []string{"10.214.0.1", "fd00:214::1"} {
			list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
			if err != nil || !slices.ContainsFunc(list, func(n netlink.Neigh) bool { return n.IP.String() == gw && n.State == netlink.NUD_PERMANENT }) {
				t.Errorf("neighbours of the pod %v, %v; want %s", list, err, gw)
			}
		}
		return nil
	})
	// A bridge that was made anew knows it as well.
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("nw0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if _, _, err := p.prepared(l.ctx(), true); err != nil {
		t.Fatal(err)
	}
	if ip, fdb := entries(); ip != 2 || fdb != 1 {
		t.Errorf("%d neighbours, %d addresses of the new bridge; want 2, 1", ip, fdb)
	}
	l.detach(p, g)
	if ip, fdb := entries(); ip != 0 || fdb != 0 {
		t.Errorf("%d neighbours, %d addresses are left", ip, fdb)
	}
}

// No packet with a source of elsewhere, or of no connection, leaves the node or reaches
// its processes, also on a kernel without tables of bridges.
func TestNoMadeUpSourceLeavesTheNode(t *testing.T) {
	for name, guarded := range map[string]bool{"guarded": true, "rules of IP alone": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			cfg := Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")}
			p, err := l.make(cfg)
			if err != nil {
				t.Fatal(err)
			}
			p.feat.guard = p.feat.guard && guarded
			l.recovered(p)
			evil := l.attach(p, "evil")
			gw := macOf(gateway(p.subnet))
			next := l.tap(l.outside, "eth0")
			fine := ethernet(gw, evil.mac(), etherIPv4, udpPacket(evil.ip, outsideAddr.Addr(), 1, 9, marker))
			synAck := func(src netip.Addr) []byte { // of no connection
				b := udpPacket(src, outsideAddr.Addr(), 80, 81, string(make([]byte, 12))+tag)
				b[9], b[20+12], b[20+13] = unix.IPPROTO_TCP, 5<<4, 0x12
				binary.BigEndian.PutUint16(b[10:], 0)
				var sum uint32
				for i := 0; i < 20; i += 2 {
					sum += uint32(binary.BigEndian.Uint16(b[i:]))
				}
				binary.BigEndian.PutUint16(b[10:], ^uint16(sum&0xffff+sum>>16))
				return b
			}
			for _, a := range []attack{
				{"IPv4", ethernet(gw, evil.mac(), etherIPv4, udpPacket(netip.MustParseAddr("8.8.8.8"), outsideAddr.Addr(), 1, 9, tag))},
				{"IPv4 of the node", ethernet(gw, evil.mac(), etherIPv4, udpPacket(netip.MustParseAddr("192.0.2.7"), outsideAddr.Addr(), 1, 9, tag))},
				{"IPv6", ethernet(gw, evil.mac(), etherIPv6, udp6(netip.MustParseAddr("2001:db8::7"), outAddr6.Addr(), 1, 9, tag))},
				{"no connection", ethernet(gw, evil.mac(), etherIPv4, synAck(evil.ip))},
			} {
				if l.arrives(evil, a.frame, fine, next) {
					t.Errorf("%s leaves the node", a.name)
				}
			}
			// The node's processes: a packet that the rules of IP drop is still seen by a tap.
			service := l.serve(l.node, "udp", ":1234", "service")
			wrong := netip.MustParseAddr("8.8.8.8")
			reserved := net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 3} // handed up by the port itself
			next = l.tap(l.node, p.name)
			fine = ethernet(gw, evil.mac(), etherIPv4, udpPacket(evil.ip, gateway(p.subnet), 1, 1234, marker))
			for n, frame := range [][]byte{
				ethernet(gw, evil.mac(), etherIPv4, udpPacket(wrong, gateway(p.subnet), 1, 1234, tag)),
				ethernet(gw, evil.mac(), etherIPv4, udpPacket(wrong, nodeAddr.Addr(), 1, 1234, tag)),
				ethernet(gw, evil.mac(), etherIPv6, udp6(netip.MustParseAddr("2001:db8::7"), gateway(p.subnet6), 1, 1234, tag)),
				ethernet(reserved, evil.mac(), etherIPv4, udpPacket(wrong, gateway(p.subnet), 1, 1234, tag)),
			} {
				if n == 3 && !p.feat.guard {
					continue // the port is no bridge to the rules of IP
				}
				before := service.Load()
				l.arrives(evil, frame, fine, next)
				l.eventually(func() bool { return service.Load() > before }, "a good packet does not come")
				if got := service.Load() - before; got != 1 {
					t.Errorf("packet %d: %d came to a process of the node, want 1", n, got)
				}
			}
		})
	}
}

// Reach says what of the node pods reach; answers to the node, ICMP and host ports do not
// depend on it.
func TestReach(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		name  string
		reach Reach
		open  map[uint16]bool
	}{
		{"all", Reach{}, map[uint16]bool{5301: true, 5302: true, 5303: true}},
		{"but", Reach{TCP: []uint16{5302}}, map[uint16]bool{5301: true, 5303: true}},
		{"only", Reach{Only: true, TCP: []uint16{5301}, UDP: []uint16{5303}}, map[uint16]bool{5301: true, 5303: true}},
		{"none", Reach{Only: true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *l
			sub.t = t
			p := sub.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64"), Reach: c.reach, StateDir: t.TempDir()})
			g, web := sub.attach(p, "g-"+c.name), sub.attach(p, "w-"+c.name, port("tcp", 8080, 80))
			sub.serve(web.ns, "tcp", ":80", "web")
			for _, addr := range []string{"10.214.0.1", "192.0.2.1", "[fd00:214::1]"} {
				for port, kind := range map[uint16]string{5301: "tcp", 5302: "tcp", 5303: "udp"} {
					at := netip.MustParseAddrPort(addr + ":" + map[uint16]string{5301: "5301", 5302: "5302", 5303: "5303"}[port]).String()
					sub.serve(sub.node, kind, at, "node")
					if c.open[port] {
						sub.asks(g.ns, kind, at, "node", "")
					} else {
						sub.asksInVain(g.ns, kind, at)
					}
				}
			}
			sub.asks(sub.node, "tcp", web.ip.String()+":80", "web", "")
			sub.asks(sub.node, "tcp", "["+web.ip6().String()+"]:80", "web", "")
			sub.asks(g.ns, "tcp", "192.0.2.1:8080", "web", "")
			sub.detach(p, g)
			sub.detach(p, web)
			if err := p.Reset(sub.ctx()); err != nil {
				t.Fatal(err)
			}
		})
	}
	for text, want := range map[string]Reach{
		"": {}, "all": {}, "none": {Only: true}, "tcp/53,udp/53": {Only: true, TCP: []uint16{53}, UDP: []uint16{53}}, "!tcp/22": {TCP: []uint16{22}},
	} {
		if got, err := ParseReach(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"tcp/0", "tcp/65536", "sctp/1", "tcp", "tcp/53,!udp/53", "!tcp/1,udp/2", "tcp/1,", "!all"} {
		if r, err := ParseReach(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, r)
		}
	}
	for _, r := range []Reach{{TCP: []uint16{0}}, {UDP: make([]uint16, maxReach+1)}} {
		if err := r.validate(); err == nil {
			t.Errorf("%v is accepted", r)
		}
	}
}
