package observed

import "net/netip"

// Addresses puts the addresses that a runtime gives of a sandbox into the order
// in which everybody sees them: the first of the family of node, the node's
// first address, and then the first of the other family. IPv4 comes first
// where node is none. dropped are those that are no addresses of a pod:
// unspecified, with a zone, leading zeros, or not to be read.
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
