package kubeletconfig

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// hostname returns --hostname-override in lower case, or "" if it is not set.
func (f *Flags) hostname() (string, error) {
	if f.Hostname == "" {
		return "", nil
	}
	name := strings.ToLower(strings.TrimSpace(f.Hostname))
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return "", fmt.Errorf("--hostname-override=%q: %s", f.Hostname, msgs[0])
	}
	return name, nil
}

// nodeIPs returns the addresses in --node-ip. A single 0.0.0.0 or :: means any address of
// that family.
func (f *Flags) nodeIPs() ([]string, error) {
	if f.NodeIP == "" {
		return nil, nil
	}
	var ips []string
	for s := range strings.SplitSeq(f.NodeIP, ",") {
		ip := net.ParseIP(strings.TrimSpace(s))
		if ip == nil {
			return nil, fmt.Errorf("--node-ip=%q: %q is not an IP address", f.NodeIP, s)
		}
		if ip.IsMulticast() || ip.IsUnspecified() && strings.Contains(f.NodeIP, ",") {
			return nil, fmt.Errorf("--node-ip=%q: %q is not an address of a single machine", f.NodeIP, s)
		}
		ips = append(ips, ip.String())
	}
	is4 := func(s string) bool { return net.ParseIP(s).To4() != nil }
	if len(ips) > 2 || len(ips) == 2 && is4(ips[0]) == is4(ips[1]) {
		return nil, fmt.Errorf("--node-ip=%q: want one address, or one of IPv4 and one of IPv6", f.NodeIP)
	}
	return ips, nil
}

// labelsAllowed are the labels in the domains kubernetes.io and k8s.io that a node may set on
// itself. It may also set labels in the domains kubelet.kubernetes.io and node.kubernetes.io
// (KEP-279, NodeRestriction).
var labelsAllowed = []string{
	v1.LabelHostname, v1.LabelInstanceType, v1.LabelInstanceTypeStable, v1.LabelOSStable, v1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion,
}

func labelAllowed(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok || slices.Contains(labelsAllowed, key) {
		return true
	}
	in := func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) }
	if in("kubelet.kubernetes.io") || in("node.kubernetes.io") {
		return true
	}
	return !in("kubernetes.io") && !in("k8s.io")
}

// nodeLabels returns the labels in --node-labels. It fails for a label that a node must not set on
// itself.
func (f *Flags) nodeLabels() (map[string]string, error) {
	all := map[string]string{}
	for s := range strings.SplitSeq(f.NodeLabels, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--node-labels: %q: want key=value", s)
		}
		all[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	var denied []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			return nil, fmt.Errorf("--node-labels: key %q: %s", key, msgs[0])
		}
		if msgs := validation.IsValidLabelValue(all[key]); len(msgs) > 0 {
			return nil, fmt.Errorf("--node-labels: %s=%q: %s", key, all[key], msgs[0])
		}
		if !labelAllowed(key) {
			denied = append(denied, key)
		}
	}
	if len(denied) > 0 {
		return nil, fmt.Errorf("--node-labels: %s: in the domains kubernetes.io and k8s.io only kubelet.kubernetes.io/*, node.kubernetes.io/* and %s are allowed",
			strings.Join(denied, ", "), strings.Join(labelsAllowed, ", "))
	}
	return all, nil
}
