// Package source determines the host that sent a request, for limits per host.
package source

import "net/netip"

// Of returns the host of a remote address HOST:PORT: the IPv4 address, or the /64 network
// of an IPv6 address, since one machine may have a whole /64 network. It returns any other
// text unchanged.
func Of(remote string) string {
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := addr.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
