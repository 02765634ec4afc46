package status

import (
	"context"
	"net"
	"net/netip"
)

// Host is the network of this machine. It has no state: every call asks the kernel
// or the resolver.
type Host struct{}

// Interfaces returns the addresses of all interfaces, also of those that are down.
// IPv4 addresses are not mapped to IPv6.
func (Host) Interfaces() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out, nil
}

// Default reads the routing table by connecting a datagram socket, which sends nothing, to a
// documentation address (RFC 5737, RFC 3849). It returns the zero Addr if there is no route, or
// if other machines cannot use the route's address.
func (Host) Default(six bool) netip.Addr {
	network, address := "udp4", "192.0.2.1:9"
	if six {
		network, address = "udp6", "[2001:db8::1]:9"
	}
	c, err := net.Dial(network, address)
	if err != nil {
		return netip.Addr{}
	}
	defer func() { _ = c.Close() }()
	a, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	// A link-local source would be of no use to other machines.
	ip := a.AddrPort().Addr().Unmap()
	if !ip.IsGlobalUnicast() {
		return netip.Addr{}
	}
	return ip
}

// Lookup calls the system's resolver. It returns when ctx ends, if not before.
func (Host) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}
