package observed

import "net/netip"

// Addresses returns a pod's addresses from those that a runtime reports for a sandbox: the first
// address of each IP family. The family of node, the node's first address, comes first; if node is
// not an address, IPv4 does. dropped are the addresses that a pod cannot have: unspecified ones,
// and those with a zone, with leading zeros or with invalid syntax.
func Addresses(given []string, node string) (ips, dropped []string) {
	var four, six string
	for _, s := range given {
		a, err := netip.ParseAddr(s)
		switch a = a.Unmap(); {
		case err != nil, a.Zone() != "", a.IsUnspecified():
			dropped = append(dropped, s)
		case a.Is4() && four == "":
			four = a.String()
		case a.Is6() && six == "":
			six = a.String()
		}
	}
	ips = []string{four, six}
	if n, err := netip.ParseAddr(node); err == nil && n.Unmap().Is6() {
		ips = []string{six, four}
	}
	out := ips[:0]
	for _, s := range ips {
		if s != "" {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, dropped
	}
	return out, dropped
}
