package bridge

import (
	"net"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The sets of the bridge table: the ports of pods, and the addresses from which each pod may send.
// Each check is one look-up in a set, so its cost does not depend on the number of pods.
const (
	setPods  = "pods"  // port
	setPods4 = "pods4" // port, MAC address, IPv4 address
	setPods6 = "pods6" // port, MAC address, IPv6 address
)

// More data types of nft's set keys; see rules.go.
const (
	typeEther  = 9
	typeIfname = 41
)

// setFamily returns the family of the table that has a set.
func setFamily(set string) byte {
	switch set {
	case setPods, setPods4, setPods6:
		return unix.NFPROTO_BRIDGE
	}
	return unix.NFPROTO_INET
}

// of returns the family of the table that has the chain.
func (c chain) of() byte {
	if c.family == 0 {
		return unix.NFPROTO_INET
	}
	return c.family
}

// families returns the address families of the tables, in ascending order.
func (l layout) families() []byte {
	if !l.guard {
		return []byte{unix.NFPROTO_INET}
	}
	return []byte{unix.NFPROTO_INET, unix.NFPROTO_BRIDGE}
}

// guardSets returns the sets of the bridge table.
func (l layout) guardSets() []mapping {
	if !l.guard {
		return nil
	}
	const sender = typeIfname<<(2*typeBits) | typeEther<<typeBits
	all := []mapping{
		{name: setPods, keyType: typeIfname, keyLen: unix.IFNAMSIZ},
		{name: setPods4, keyType: sender | typeIPv4, keyLen: unix.IFNAMSIZ + 8 + 4},
	}
	if l.has6() {
		all = append(all, mapping{name: setPods6, keyType: sender | typeIPv6, keyLen: unix.IFNAMSIZ + 8 + 16})
	}
	return all
}

// Priority of dstnat in family bridge: only redirects come earlier.
const prioBridgeFirst = -300

// Numbers of Ethernet and of the messages of neighbours (RFC 826, RFC 4861).
var (
	etherARP   = []byte{0x08, 0x06}
	etherIPv4  = []byte{0x08, 0x00}
	etherIPv6  = []byte{0x86, 0xdd}
	arpOfIPv4  = []byte{0, 1, 8, 0, 6, 4} // Ethernet, IPv4, and the lengths of their addresses
	dhcpClient = []byte{0, 68}            // the port to which servers answer (RFC 2131)
	dhcp6      = []byte{0x02, 0x22}       // 546, of DHCPv6 (RFC 8415)
)

const (
	routerAdvertisement   = 134
	neighbourSolicitation = 135
	neighbourAdvert       = 136
	redirect              = 137

	// Lengths of a message about neighbours, without an option and with one.
	plainNeighbour  = 24
	optionNeighbour = 32
)

// guardChains returns the chains of the bridge table. A frame that enters at a pod's port must have
// the MAC and IP addresses of the pod, also as the sender in ARP and in neighbour discovery. Only
// IPv4, IPv6 and ARP pass, without a VLAN tag. Router advertisements, redirects and answers of DHCP
// are dropped. Frames from other ports and from the node pass.
func (l layout) guardChains() []chain {
	if !l.guard {
		return nil
	}
	jump := func(to string) []expr.Any { return verdict(expr.VerdictJump, to) }
	accept, drop := verdict(expr.VerdictAccept, ""), verdict(expr.VerdictDrop, "")
	pod := rule(load(expr.MetaKeyIIFNAME), []expr.Any{&expr.Lookup{SourceRegister: reg32(regKey), SetName: setPods}})
	link, network, transport := expr.PayloadBaseLLHeader, expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	// The type of an Ethernet frame. In a tagged frame it is the type of the tag.
	ether := func(kind []byte) []expr.Any { return equal(link, 12, kind) }
	const macOffset = 6 // of the source in an Ethernet frame
	from4 := func(macBase expr.PayloadBase, mac, ip uint32) []expr.Any {
		return sender(setPods4, macBase, mac, network, ip, 4)
	}
	rules := [][]expr.Any{
		// The sender's addresses are at offsets 8 and 14.
		rule(ether(etherARP), equal(network, 0, arpOfIPv4), from4(link, macOffset, 14), from4(network, 8, 14), accept),
		rule(ether(etherIPv4), layer4(unix.IPPROTO_UDP), equal(transport, 2, dhcpClient), drop),
		rule(ether(etherIPv4), from4(link, macOffset, source.offset(4)), accept),
	}
	var neighbours [][]expr.Any
	if l.has6() {
		own := func(macBase expr.PayloadBase, mac uint32, ipBase expr.PayloadBase, ip uint32) []expr.Any {
			return sender(setPods6, macBase, mac, ipBase, ip, 16)
		}
		src := source.offset(16)
		header := own(link, macOffset, network, src)
		kind := func(n byte) []expr.Any { return equal(transport, 0, []byte{n}) }
		icmp := func(n byte) []expr.Any { return rule(ether(etherIPv6), layer4(unix.IPPROTO_ICMPV6), kind(n)) }
		rules = append(rules,
			rule(ether(etherIPv6), layer4(unix.IPPROTO_UDP), equal(transport, 2, dhcp6), drop),
			rule(icmp(routerAdvertisement), drop),
			rule(icmp(redirect), drop),
			rule(icmp(neighbourSolicitation), jump("neighbours")),
			rule(icmp(neighbourAdvert), jump("neighbours")),
			rule(ether(etherIPv6), header, accept))
		// As Linux sends them: no extension headers, and at most the option with the MAC
		// address of the sender (type 1) or the target (2), at 24. The target is at 8.
		message := func(n, length byte, more ...[]expr.Any) []expr.Any {
			return rule(append([][]expr.Any{kind(n), equal(network, 4, []byte{0, length, unix.IPPROTO_ICMPV6}), header}, append(more, accept)...)...)
		}
		const option, optionMAC, target = 24, 26, 8
		neighbours = [][]expr.Any{
			message(neighbourSolicitation, plainNeighbour),
			message(neighbourSolicitation, optionNeighbour, equal(transport, option, []byte{1, 1}), own(transport, optionMAC, network, src)),
			message(neighbourAdvert, plainNeighbour, own(link, macOffset, transport, target)),
			message(neighbourAdvert, optionNeighbour, equal(transport, option, []byte{2, 1}), own(transport, optionMAC, transport, target)),
			drop,
		}
	}
	// Bridges do not forward these addresses (IEEE 802.1D). Such frames skip the prerouting chain,
	// and the node would receive them on the port instead of the bridge.
	reserved := []expr.Any{
		&expr.Payload{DestRegister: regOne, Base: link, Len: 6},
		&expr.Bitwise{SourceRegister: regOne, DestRegister: regOne, Len: 6, Mask: []byte{255, 255, 255, 255, 255, 0xf0}, Xor: make([]byte, 6)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regOne, Data: []byte{0x01, 0x80, 0xc2, 0, 0, 0}},
	}
	return []chain{
		{family: unix.NFPROTO_BRIDGE, name: "neighbours", rules: neighbours},
		{family: unix.NFPROTO_BRIDGE, name: "pods", rules: append(rules, drop)},
		{family: unix.NFPROTO_BRIDGE, name: "prerouting", kind: "filter", hook: unix.NF_INET_PRE_ROUTING, priority: prioBridgeFirst, rules: [][]expr.Any{rule(pod, jump("pods"))}},
		{family: unix.NFPROTO_BRIDGE, name: "input", kind: "filter", hook: unix.NF_INET_LOCAL_IN, priority: prioBridgeFirst, rules: [][]expr.Any{rule(pod, reserved, drop)}},
	}
}

// load returns the expression that loads metadata of the packet, such as the name of its port, into
// regKey: the first register of the key of a set look-up.
func load(key expr.MetaKey) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: reg32(regKey)}}
}

// layer4 compares the protocol after the IP header and its extensions.
func layer4(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regOne},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regOne, Data: []byte{proto}},
	}
}

// equal compares bytes of a packet. It does not match a packet without them.
func equal(base expr.PayloadBase, offset uint32, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: regOne, Base: base, Offset: offset, Len: uint32(len(want))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regOne, Data: want},
	}
}

// sender returns expressions that check whether a set contains a packet's port, MAC address and
// IP address. The IP address has size bytes.
func sender(set string, macBase expr.PayloadBase, mac uint32, ipBase expr.PayloadBase, ip, size uint32) []expr.Any {
	return rule(load(expr.MetaKeyIIFNAME), []expr.Any{
		&expr.Payload{DestRegister: reg32(regKey + unix.IFNAMSIZ/4), Base: macBase, Offset: mac, Len: 6},
		&expr.Payload{DestRegister: reg32(regKey + unix.IFNAMSIZ/4 + 2), Base: ipBase, Offset: ip, Len: size},
		&expr.Lookup{SourceRegister: reg32(regKey), SetName: set},
	})
}

// senders returns a pod's entries in the sets, in the order that the method
// batch.change needs. If v6 is false, there is no set for IPv6.
func senders(pod plan, v6 bool) []element {
	port := string(append([]byte(pod.Veth), make([]byte, unix.IFNAMSIZ-len(pod.Veth))...))
	mac := macOf(pod.IPv4.Addr())
	key := func(a netip.Addr) string { return port + string(mac) + "\x00\x00" + string(a.AsSlice()) }
	all := []element{{set: setPods, key: port}, {set: setPods4, key: key(pod.IPv4.Addr())}}
	if pod.IPv6.IsValid() && v6 {
		all = append(all, element{set: setPods6, key: key(pod.IPv6.Addr())}, element{set: setPods6, key: key(linkLocal(mac))})
	}
	return all
}

// linkLocal returns the link-local address that the kernel derives from a MAC address
// (RFC 4291, appendix A). Neighbour discovery of pods uses it.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}
