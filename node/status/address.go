package status

import (
	"errors"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The addresses of a node are computed from values only. The order of preference is the kubelet's:
// configured addresses, the node's name, the default route.

// AnnotationProvidedIP passes the configured addresses to an external cloud provider
// (k8s.io/cloud-provider/api).
const AnnotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"

// setAddresses writes the addresses and the annotation for the provider. After an error
// the node keeps its earlier addresses. An address that the machine does not have is an
// error, because clients would send requests for this node to another machine.
func setAddresses(node *v1.Node, in Addressing) error {
	given := in.NodeIPs
	anyOf := len(given) == 1 && given[0].IsUnspecified() // 0.0.0.0 or ::
	if !anyOf {
		// Checked at each call: the address may be added to an interface later.
		for _, ip := range given {
			if err := checkNodeIP(ip, in.Host); err != nil {
				return err
			}
		}
	}
	// The cloud provider chooses the node's addresses by this annotation. It is removed when no
	// addresses are configured any more, or the provider would use stale ones.
	if in.External && len(given) > 0 && !anyOf {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[AnnotationProvidedIP] = joinAddrs(given)
	} else {
		delete(node.Annotations, AnnotationProvidedIP)
	}
	host := v1.NodeAddress{Type: v1.NodeHostName, Address: in.Hostname}
	switch {
	case in.External && len(node.Status.Addresses) > 0:
		return nil // they are the provider's
	// Addresses of our own choice could be wrong in the cloud's network; the name
	// lets the provider find the node.
	case in.External && len(given) == 0:
		node.Status.Addresses = []v1.NodeAddress{host}
		return nil
	case len(given) > 0 && !anyOf:
		node.Status.Addresses = append(internal(given...), host)
		return nil
	}
	ip, err := in.choose(anyOf && given[0].Is6())
	if err != nil {
		return err
	}
	node.Status.Addresses = append(internal(ip), host)
	return nil
}

// choose returns the address of a node without a configured one. It is the node's name if the
// name is an address, or else the address in DNS, or else the address of the default route. If
// six is set, IPv6 is preferred. If there is no address of the preferred family, an address of
// the other family is used. It returns an error if there is none. It makes no call: the answers
// of DNS are in the inputs.
func (in Addressing) choose(six bool) (netip.Addr, error) {
	if ip, ok := sloppyAddr(in.Hostname); ok {
		return ip, nil
	}
	var other netip.Addr
	for _, ip := range in.Resolved {
		ip = ip.Unmap()
		switch {
		// DNS may answer 127.0.1.1 from /etc/hosts, or the address of another
		// machine.
		case checkNodeIP(ip, in.Host) != nil:
		case ip.Is6() == six:
			return ip, nil
		// The first of the other family, in the order of DNS.
		case !other.IsValid():
			other = ip
		}
	}
	first, second := in.Default4, in.Default6
	if six {
		first, second = second, first
	}
	for _, ip := range []netip.Addr{other, first, second} {
		if ip.IsValid() {
			return ip, nil
		}
	}
	return netip.Addr{}, errors.New("node addresses: no node IP is configured, the node's name does not resolve, and there is no default route")
}

// needsName reports whether DNS is needed. A node with a configured address must
// not depend on a name server.
func (in Addressing) needsName() bool {
	if len(in.NodeIPs) > 0 && !in.NodeIPs[0].IsUnspecified() || in.External && len(in.NodeIPs) == 0 {
		return false
	}
	_, ip := sloppyAddr(in.Hostname)
	return !ip
}

// internal returns addresses of type InternalIP, in the order of ips.
func internal(ips ...netip.Addr) []v1.NodeAddress {
	var out []v1.NodeAddress
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
	}
	return out
}

// joinAddrs returns the addresses separated by commas, as --node-ip and the
// annotation have them.
func joinAddrs(ips []netip.Addr) string {
	var text []string
	for _, ip := range ips {
		text = append(text, ip.String())
	}
	return strings.Join(text, ",")
}
