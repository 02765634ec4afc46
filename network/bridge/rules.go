package bridge

import (
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The maps of the table. They translate a port of all addresses of the node, or of a single one, to
// an address and a port.
const (
	setAny4  = "hostports4"
	setAddr4 = "hostports4_addr"
	setAny6  = "hostports6"
	setAddr6 = "hostports6_addr"
)

// Data types of set keys, numbered as in the nft program, which prints keys by
// them. The kernel ignores them. A concatenation has six bits for each type, the
// first in the highest bits.
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeProto   = 12
	typeService = 13
	typeBits    = 6
)

// A mapping is a map of the table, or a set if valLen is 0. Lengths are in bytes; each
// field of a concatenation is filled up to 4.
type mapping struct {
	name             string
	keyType, valType uint32
	keyLen, valLen   uint32
}

// The numbers of 4-byte registers: keys start at regKey, and values at regVal.
const (
	regKey = 0
	regVal = 8
	regOne = unix.NFT_REG_1 // for single comparisons
)

// reg32 returns the kernel's number of a 4-byte register. The first 4-byte register of a 16-byte
// register has the number of the 16-byte register.
func reg32(n uint32) uint32 {
	if n%4 == 0 {
		return unix.NFT_REG_1 + n/4
	}
	return unix.NFT_REG32_00 + n
}

// Bits of a connection's status and of its state (nf_conntrack_common.h, nf_tables.h).
const (
	ctDNAT        = 1 << 5
	ctInvalid     = 1 << 0
	ctEstablished = 1<<1 | 1<<2 // established, related
)

// layout has the values on which the table's rules depend. Equal layouts give equal rules; the
// method mark relies on this.
type layout struct {
	bridge          string
	subnet, subnet6 netip.Prefix
	drop4, drop6    bool // forwarding between other interfaces
	guard           bool // what pods send is checked at their ports of the bridge
	reach           Reach
}

// has6 reports whether pods have IPv6 addresses.
func (l layout) has6() bool { return l.subnet6.IsValid() }

// mappings returns the maps of the tables: two for each address family, and the sets of guard.go.
func (l layout) mappings() []mapping {
	const port = typeProto<<typeBits | typeService
	all := []mapping{
		{setAny4, port, typeIPv4<<typeBits | typeService, 8, 8},
		{setAddr4, typeIPv4<<(2*typeBits) | port, typeIPv4<<typeBits | typeService, 12, 8},
	}
	if l.has6() {
		all = append(all,
			mapping{setAny6, port, typeIPv6<<typeBits | typeService, 8, 20},
			mapping{setAddr6, typeIPv6<<(2*typeBits) | port, typeIPv6<<typeBits | typeService, 24, 20})
	}
	return append(all, l.guardSets()...)
}

// A chain of one of the tables. A chain without a kind is not a base chain. A chain with a lower
// priority runs earlier.
type chain struct {
	family   byte // NFPROTO_INET unless it is set
	name     string
	kind     string
	hook     uint32
	priority int32
	rules    [][]expr.Any
}

// Priorities as nft calls them: dstnat, srcnat, filter.
const (
	prioDstNAT = -100
	prioSrcNAT = 100
	prioFilter = 0
)

// forwardChain is the name of the chain for forwarded packets.
const forwardChain = "forward"

// chains returns the chains of the table; chains that others jump to come first.
// The number of rules does not depend on the number of pods.
func (l layout) chains() []chain {
	var (
		v4, v6  = family(unix.NFPROTO_IPV4), family(unix.NFPROTO_IPV6)
		in, out = ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, l.bridge), ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, l.bridge)
		notOut  = ifname(expr.MetaKeyOIFNAME, expr.CmpOpNeq, l.bridge)
		own     = rule(v4, within(source, l.subnet))
		own6    = rule(v6, within(source, l.subnet6))
		loop    = netip.MustParsePrefix("127.0.0.0/8")
	)
	// The more specific map comes first: a port of one address wins over one of all
	// addresses.
	hostports := [][]expr.Any{
		rule(v4, daddr(4), portKey(regKey+1), translate(setAddr4, unix.NFPROTO_IPV4, 1)),
		rule(v4, portKey(regKey), translate(setAny4, unix.NFPROTO_IPV4, 1)),
	}
	// Replies to connections through an address of the node have to return through the node,
	// whether the client is the pod itself, another pod of the bridge, or 127.0.0.1.
	postrouting := [][]expr.Any{
		rule(out, v4, within(source, loop), translated(true), masquerade()),
		rule(out, own, translated(true), masquerade()),
		// Pods' addresses are not valid outside of the node.
		rule(notOut, own, masquerade()),
	}
	// Packets with a source outside of the subnet are forged, including those of 127.0.0.0/8.
	// Without an IPv6 subnet, all IPv6 packets are. A kernel without the guard table relies on
	// these rules alone.
	forward := [][]expr.Any{
		rule(in, v4, outside(l.subnet), verdict(expr.VerdictDrop, "")),
		rule(in, v6, outside(l.subnet6), verdict(expr.VerdictDrop, "")),
		// Packets without a connection are dropped, since their source would not be masqueraded.
		rule(in, notOut, invalid(), verdict(expr.VerdictDrop, "")),
		// Both directions need a rule, since replies are forwarded too.
		rule(in, verdict(expr.VerdictAccept, "")),
		rule(out, verdict(expr.VerdictAccept, "")),
	}
	linkLocal := netip.MustParsePrefix("fe80::/10")
	// The bridge accepts packets for 127.0.0.1, which replies to the node need. Packets for it that
	// pods forge are dropped (CVE-2020-8558).
	input := [][]expr.Any{
		rule(in, v4, within(destination, loop), translated(false), verdict(expr.VerdictDrop, "")),
		rule(in, v4, outside(l.subnet), translated(false), verdict(expr.VerdictDrop, "")),
	}
	if l.has6() {
		input = append(input, rule(in, v6, outside(l.subnet6), outside(linkLocal), verdict(expr.VerdictDrop, "")))
	} else {
		input = append(input, rule(in, v6, verdict(expr.VerdictDrop, "")))
	}
	input = append(input, l.reach.rules(in)...)
	// The last rule drops packets that are neither from nor to pods, as before forwarding was
	// turned on.
	if l.drop4 {
		forward = append(forward, dropOthers(unix.NFPROTO_IPV4))
	}
	if l.has6() {
		hostports = append(hostports,
			// Linux has no NAT for packets of the loopback interface to ::1: they are
			// left alone.
			rule(v6, within(destination, netip.MustParsePrefix("::1/128")), verdict(expr.VerdictReturn, "")),
			rule(v6, daddr(16), portKey(regKey+4), translate(setAddr6, unix.NFPROTO_IPV6, 4)),
			rule(v6, portKey(regKey), translate(setAny6, unix.NFPROTO_IPV6, 4)))
		postrouting = append(postrouting,
			rule(out, own6, translated(true), masquerade()),
			rule(notOut, own6, masquerade()))
		if l.drop6 {
			forward = append(forward, dropOthers(unix.NFPROTO_IPV6))
		}
	}
	// Only packets to the node itself are looked up, not connections that pass
	// through it to the same port.
	local := rule(localDestination(), verdict(expr.VerdictJump, "hostports"))
	return append([]chain{
		{name: "hostports", rules: hostports},
		{name: "prerouting", kind: "nat", hook: unix.NF_INET_PRE_ROUTING, priority: prioDstNAT, rules: [][]expr.Any{
			// A neighbour of the node that sends to 127.0.0.1 must not reach ports that only the
			// node may use.
			rule(v4, within(destination, loop), verdict(expr.VerdictReturn, "")),
			local,
		}},
		// Packets of the node's own processes do not pass prerouting.
		{name: "output", kind: "nat", hook: unix.NF_INET_LOCAL_OUT, priority: prioDstNAT, rules: [][]expr.Any{local}},
		{name: "postrouting", kind: "nat", hook: unix.NF_INET_POST_ROUTING, priority: prioSrcNAT, rules: postrouting},
		{name: forwardChain, kind: "filter", hook: unix.NF_INET_FORWARD, priority: prioFilter, rules: forward},
		{name: "input", kind: "filter", hook: unix.NF_INET_LOCAL_IN, priority: prioFilter, rules: input},
	}, l.guardChains()...)
}

// rule joins lists of expressions to the list of one rule.
func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// family compares the packet's protocol, since chains of family inet see both IPv4 and
// IPv6.
func family(proto byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: regOne},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regOne, Data: []byte{proto}},
	}
}

// deviceGroup is the interface group (ip-link(8)) of every bridge of this package, of
// all agents.
const deviceGroup = 0x6e77

// dropOthers drops packets that are neither from nor to pods. It considers the pods of
// all agents of the node: if one table drops a packet, no other table can accept it.
func dropOthers(proto byte) []expr.Any {
	notIn := func(key expr.MetaKey) []expr.Any {
		return []expr.Any{
			&expr.Meta{Key: key, Register: regOne},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: regOne, Data: binaryutil.NativeEndian.PutUint32(deviceGroup)},
		}
	}
	return rule(family(proto), notIn(expr.MetaKeyIIFGROUP), notIn(expr.MetaKeyOIFGROUP), verdict(expr.VerdictDrop, ""))
}

// ifname compares the whole name of an interface. It compares the field of 16 bytes; without the
// zeros, the name would match as a prefix.
func ifname(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: regOne},
		&expr.Cmp{Op: op, Register: regOne, Data: append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)},
	}
}

// side is the source or the destination of a packet.
type side int

const (
	source side = iota
	destination
)

// offset returns the offset of the address in the packet's header: IPv4 has its addresses at 12 and
// 16 (RFC 791), IPv6 at 8 and 24 (RFC 8200).
func (s side) offset(size uint32) uint32 {
	first := uint32(12)
	if size == 16 {
		first = 8
	}
	return first + uint32(s)*size
}

// within compares an address with a prefix. A preceding expression has compared the family. For an
// invalid prefix it returns no expression, and the rule is not used.
func within(s side, p netip.Prefix) []expr.Any { return compareAddress(s, p, expr.CmpOpEq) }

// outside checks that the source is not within a prefix. For an invalid prefix, it
// matches each address.
func outside(p netip.Prefix) []expr.Any { return compareAddress(source, p, expr.CmpOpNeq) }

func compareAddress(s side, p netip.Prefix, op expr.CmpOp) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	addr := p.Masked().Addr().AsSlice()
	size := uint32(len(addr))
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: regOne, Base: expr.PayloadBaseNetworkHeader, Offset: s.offset(size), Len: size},
		&expr.Bitwise{SourceRegister: regOne, DestRegister: regOne, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: regOne, Data: addr},
	}
}

// daddr returns the expression that loads a packet's destination address into regKey, as the
// beginning of the key of a set look-up.
func daddr(size uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: reg32(regKey), Base: expr.PayloadBaseNetworkHeader, Offset: destination.offset(size), Len: size}}
}

// portKey loads protocol and destination port, each into a register. All protocols
// with host ports have the port at the same offset.
func portKey(reg uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg32(reg)},
		&expr.Payload{DestRegister: reg32(reg + 1), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// translate looks the key up and changes the destination to the value. A missing
// key continues with the next rule.
func translate(set string, proto, addrRegs uint32) []expr.Any {
	addr, port := reg32(regVal), reg32(regVal+addrRegs)
	return []expr.Any{
		&expr.Lookup{SourceRegister: reg32(regKey), DestRegister: addr, IsDestRegSet: true, SetName: set},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: proto, RegAddrMin: addr, RegAddrMax: addr, RegProtoMin: port, RegProtoMax: port, Specified: true},
	}
}

// translated checks whether the connection's destination was changed or, if want is false, not
// changed. The kernel stores this in the status of the connection, for all packets in both
// directions.
func translated(want bool) []expr.Any { return connection(expr.CtKeySTATUS, ctDNAT, want) }

// invalid checks whether a packet belongs to no connection.
func invalid() []expr.Any { return connection(expr.CtKeySTATE, ctInvalid, true) }

// connection checks whether one of the bits of a connection's value is set or, if want is false,
// whether none is.
func connection(key expr.CtKey, bits uint32, want bool) []expr.Any {
	op := expr.CmpOpEq
	if want {
		op = expr.CmpOpNeq
	}
	return []expr.Any{
		&expr.Ct{Key: key, Register: regOne},
		&expr.Bitwise{SourceRegister: regOne, DestRegister: regOne, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: regOne, Data: make([]byte, 4)},
	}
}

// localDestination checks whether a packet is for an address of the node. It uses
// the kernel's own table of addresses (expression fib), so that rules need not
// follow changes of addresses.
func localDestination() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: regOne, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regOne, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

// masquerade replaces the source by an address of the interface that the packet leaves
// by.
func masquerade() []expr.Any { return []expr.Any{&expr.Masq{}} }

// verdict returns the expression that ends a rule. chain is the target of a jump; for other
// verdicts it is "".
func verdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}
