// Package source says where a request comes from.
package source

import "net/netip"

// Of is the host of a remote address, host:port: its address, or the network
// of an IPv6 address, a /64, of which one machine may have all. What is no
// address is itself.
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
