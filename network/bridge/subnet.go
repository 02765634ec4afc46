package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ranges are the ranges from which a subnet of subnetBits is chosen, in this order.
// The defaults of CRI-O (10.85.0.0/16), podman and containerd (10.88.0.0/16), k3s
// (10.42.0.0/16) and Docker (172.17.0.0/16) are outside.
var ranges = []netip.Prefix{netip.MustParsePrefix("10.214.0.0/16"), netip.MustParsePrefix("192.168.192.0/18")}

const (
	subnetBits = 24
	minBits4   = 8  // the largest subnet
	maxBits4   = 29 // the smallest: five pods
	// defaultRouteBits is the longest prefix that counts as a default route. It includes the two
	// halves that some VPNs add.
	defaultRouteBits = 1
)

// taken is a range of addresses in use, and its user.
type taken struct {
	prefix netip.Prefix
	by     string // "route 10.8.0.0/24 dev tun0", to be read after "overlaps"
}

// overlap returns the first element of list that overlaps subnet, and false if there is none.
// Default routes overlap everything and do not count.
func overlap(subnet netip.Prefix, list []taken) (taken, bool) {
	for _, t := range list {
		if t.prefix.Bits() > defaultRouteBits && t.prefix.Overlaps(subnet) {
			return t, true
		}
	}
	return taken{}, false
}

// chooseSubnet returns the first subnet of the ranges that overlaps nothing. The order
// is fixed, so that a node without conflicts gets the same subnet each time.
func chooseSubnet(all []taken) (netip.Prefix, error) {
	for _, r := range ranges {
		base := toUint(r.Addr())
		for i := range uint32(1) << (subnetBits - r.Bits()) {
			subnet := netip.PrefixFrom(fromUint(base+i<<(32-subnetBits)), subnetBits)
			if _, found := overlap(subnet, all); !found {
				return subnet, nil
			}
		}
	}
	return netip.Prefix{}, fmt.Errorf("no free subnet in %s and %s: every /%d there overlaps a route, an address or a name server; set Config.Subnet, or podCIDR of the agent",
		ranges[0], ranges[1], subnetBits)
}

// validSubnet returns an error if a prefix cannot be a subnet for pods. It also
// checks subnets of records.
func validSubnet(p netip.Prefix) error {
	switch {
	case !p.IsValid() || !p.Addr().Is4():
		return fmt.Errorf("%s: want an IPv4 prefix such as 10.214.0.0/24", p)
	case p != p.Masked():
		return fmt.Errorf("%s: want an address without bits after the prefix length, as in %s", p, p.Masked())
	case p.Bits() > maxBits4 || p.Bits() < minBits4:
		return fmt.Errorf("%s: want a prefix length of %d to %d bits", p, minBits4, maxBits4)
	// 0.0.0.0/8 and all from 224.0.0.0 on are never addresses of hosts (RFC 1122, RFC
	// 1112).
	case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsLinkLocalUnicast() || p.Addr().As4()[0] == 0 || p.Addr().As4()[0] >= 224:
		return fmt.Errorf("%s: want unicast addresses", p)
	}
	return nil
}

// validSubnet6 returns an error if a prefix cannot be the IPv6 subnet beside the IPv4 one. If the
// IPv4 subnet is chosen later, with subnetBits, p4 is the zero value.
func validSubnet6(p6, p4 netip.Prefix) error {
	most := 128 - 24
	if p4.IsValid() {
		most = 128 - (32 - p4.Bits())
	}
	switch {
	case !p6.Addr().Is6() || p6.Addr().Is4In6() || p6.Addr().Zone() != "":
		return fmt.Errorf("%s: want an IPv6 prefix such as fd00:214::/64", p6)
	case p6 != p6.Masked():
		return fmt.Errorf("%s: want an address without bits after the prefix length, as in %s", p6, p6.Masked())
	case p6.Bits() < 16 || p6.Bits() > most:
		return fmt.Errorf("%s: want a prefix length of 16 to %d bits, so that it has as many addresses as the IPv4 subnet", p6, most)
	// Private and global ranges are both accepted.
	case p6.Addr().IsLoopback() || p6.Addr().IsMulticast() || p6.Addr().IsLinkLocalUnicast() || p6.Addr().IsUnspecified():
		return fmt.Errorf("%s: want unicast addresses", p6)
	}
	return nil
}

// gateway returns the first address of a subnet, which is the node's.
func gateway(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// broadcast returns the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	return fromUint(toUint(p.Masked().Addr()) | 1<<(32-p.Bits()) - 1)
}

// twin returns the address of p6 with the offset that addr has in p4. validSubnet6 has checked that
// p6 is large enough.
func twin(addr netip.Addr, p4, p6 netip.Prefix) netip.Addr {
	offset := toUint(addr) - toUint(p4.Masked().Addr())
	b := p6.Masked().Addr().As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+uint64(offset))
	return netip.AddrFrom16(b)
}

// macOf returns 0a:58 followed by the IPv4 address. The first byte has the bit of locally
// administered addresses (IEEE 802). CNI's bridge plugin used the same two bytes.
func macOf(addr netip.Addr) net.HardwareAddr {
	b := addr.As4()
	return net.HardwareAddr{0x0a, 0x58, b[0], b[1], b[2], b[3]}
}

// toUint converts an IPv4 address to a number.
func toUint(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

// fromUint is the inverse of toUint.
func fromUint(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// prefixOf converts an address and mask of netlink. The destination of a default route is nil;
// for it prefixOf returns an error.
func prefixOf(n *net.IPNet) (netip.Prefix, error) {
	if n == nil {
		return netip.Prefix{}, errors.New("the default route has no destination prefix")
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, total := n.Mask.Size()
	if !ok || total == 0 {
		return netip.Prefix{}, fmt.Errorf("%s: want an IPv4 or IPv6 prefix", n)
	}
	if addr.Is4In6() && total == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits), nil
}
