// Package source determines the source of a request.
package source

import "net/netip"

// Of returns the host of a remote address, host:port: its IPv4 address, or the /64
// network of an IPv6 address, since one machine may have all of it. Any other text
// is returned unchanged.
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
