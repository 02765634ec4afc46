package status

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// ParseNodeIPs reads the value of --node-ip: up to two addresses, separated by commas. Parts that
// are not addresses are returned in ignored. Two addresses must be of different families, and
// neither may be unspecified. A single 0.0.0.0 or :: requests the default address of its family.
// Leading zeros of IPv4 are decimal, as in the kubelet. ips have the order of the text; the first
// one decides the node's primary family.
func ParseNodeIPs(text string) (ips []netip.Addr, ignored []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		ip, ok := sloppyAddr(part)
		if !ok {
			ignored = append(ignored, part)
			continue
		}
		ips = append(ips, ip)
	}
	return ips, ignored, checkNodeIPs(ips, text)
}

// checkNodeIPs returns an error for more than one address, unless they are one IPv4 and one IPv6
// address. The error shows text.
func checkNodeIPs(ips []netip.Addr, text string) error {
	switch {
	case len(ips) < 2:
		return nil
	case len(ips) > 2:
		return fmt.Errorf("node IPs: %q: %d addresses; want two at most", text, len(ips))
	case ips[0].IsUnspecified() || ips[1].IsUnspecified():
		return fmt.Errorf("node IPs: %q: 0.0.0.0 and :: cannot be combined with another address", text)
	case ips[0].Is4() == ips[1].Is4():
		return fmt.Errorf("node IPs: %q: want one IPv4 and one IPv6 address", text)
	}
	return nil
}

// sloppyAddr parses an address. Parts of an IPv4 address may have leading zeros: old
// configurations have addresses such as 010.0.0.1, which Kubernetes has always read as 10.0.0.1.
// An IPv4-mapped IPv6 address becomes IPv4. Zones are refused, since they are valid only on this
// machine.
func sloppyAddr(s string) (netip.Addr, bool) {
	if !strings.Contains(s, ":") {
		parts := strings.Split(s, ".")
		for i, p := range parts {
			if t := strings.TrimLeft(p, "0"); t != "" {
				parts[i] = t
			} else if p != "" {
				parts[i] = "0"
			}
		}
		s = strings.Join(parts, ".")
	}
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, false
	}
	return ip.Unmap(), true
}

// checkNodeIP returns an error unless an address can be a node's: it must be an address
// of one of the node's interfaces (host), and no loopback, link-local, multicast or
// unspecified address. ip must not be an IPv4-mapped IPv6 address. If host is empty,
// every address is refused.
func checkNodeIP(ip netip.Addr, host []netip.Addr) error {
	var why string
	switch {
	case !ip.IsValid():
		return errors.New("node IP is empty; want an address")
	case ip.IsLoopback():
		why = "a loopback address"
	case ip.IsMulticast():
		why = "a multicast address"
	case ip.IsLinkLocalUnicast():
		why = "a link-local address"
	case ip.IsUnspecified():
		why = "the unspecified address"
	default:
		for _, h := range host {
			if h.Unmap().WithZone("") == ip {
				return nil
			}
		}
		why = "not an address of this machine's interfaces"
	}
	return fmt.Errorf("node IP: %s is %s", ip, why)
}
