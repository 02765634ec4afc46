package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/network"
)

// maxPorts limits the host ports of an attachment.
const maxPorts = 1024

// claim is a host port. Two attachments cannot have the same claim. A claim of a port on all
// addresses of the node and a claim of the same port on a single address can exist at the same
// time; packets to that address follow the more specific claim.
type claim = hostports.Claim

// forward is a claim and the port of the pod that it leads to.
type forward struct {
	claim
	to uint16
}

// forwards returns the forwards for the ports of an attachment, in order, for pods
// with or without an IPv6 address, and warnings about ports that are not served.
func forwards(ports []network.Port, v6 bool) (all []forward, warnings []string, err error) {
	if len(ports) > maxPorts {
		return nil, nil, network.Errorf(network.InvalidArgument, "ports: %d of them, want at most %d", len(ports), maxPorts)
	}
	seen := map[claim]uint16{}
	for i, p := range ports {
		// Ports without a host port are only declared, as in a pod's spec.
		if p.HostPort == 0 {
			continue
		}
		proto, ok := hostports.Proto(p.Protocol)
		if !ok {
			return nil, nil, network.Errorf(network.InvalidArgument, "ports[%d].protocol %q: want tcp, udp or sctp", i, p.Protocol)
		}
		if p.ContainerPort == 0 {
			return nil, nil, network.Errorf(network.InvalidArgument, "ports[%d].containerPort 0: want 1 to 65535", i)
		}
		// An IPv4-mapped IPv6 address counts as the IPv4 address.
		addr := p.HostIP.Unmap()
		if addr.Zone() != "" || addr.IsMulticast() {
			return nil, nil, network.Errorf(network.InvalidArgument, "ports[%d].hostIP %s: want an address of the node, without a zone", i, addr)
		}
		var claims []claim
		switch {
		// Without an address, the port is claimed on all addresses of the node, in the address
		// families of the pod.
		case !addr.IsValid():
			claims = append(claims, claim{Proto: proto, Port: p.HostPort})
			if v6 {
				claims = append(claims, claim{Proto: proto, Port: p.HostPort, V6: true})
			}
		case addr.Is4() && addr.IsUnspecified():
			claims = append(claims, claim{Proto: proto, Port: p.HostPort})
		case addr.Is4():
			claims = append(claims, claim{Proto: proto, Port: p.HostPort, Addr: addr})
		// A warning, not an error: as with the kubelet, a pod starts although a family is missing,
		// and its other ports work.
		case !v6:
			warnings = append(warnings, fmt.Sprintf("host port %s %d on %s is not served: the pod has no IPv6 address", p.Protocol, p.HostPort, addr))
		case addr.IsLoopback():
			warnings = append(warnings, fmt.Sprintf("host port %s %d on %s is not served: there is no NAT of the IPv6 loopback address", p.Protocol, p.HostPort, addr))
		case addr.IsUnspecified():
			claims = append(claims, claim{Proto: proto, Port: p.HostPort, V6: true})
		default:
			claims = append(claims, claim{Proto: proto, Port: p.HostPort, V6: true, Addr: addr})
		}
		for _, c := range claims {
			// Pods may name the same port twice, as long as both lead to the same
			// place.
			to, twice := seen[c]
			if twice && to != p.ContainerPort {
				return nil, nil, network.Errorf(network.InvalidArgument, "ports[%d]: host port %s leads to %d and to %d, want one of them", i, c, to, p.ContainerPort)
			}
			if !twice {
				seen[c] = p.ContainerPort
				all = append(all, forward{c, p.ContainerPort})
			}
		}
	}
	return all, warnings, nil
}

// element is an entry of a map: the claim in the form of a packet's fields, and its destination.
// Keys and values are strings, so that they can be map keys and be compared.
type element struct {
	set      string
	key, val string // bytes
}

// element returns the map entry for a forward to a pod. The destination has the
// same address family: there is no translation between families.
func (f forward) element(pod plan) element {
	to, set := pod.IPv4.Addr(), setAny4
	switch {
	case f.V6 && f.Addr.IsValid():
		to, set = pod.IPv6.Addr(), setAddr6
	case f.V6:
		to, set = pod.IPv6.Addr(), setAny6
	case f.Addr.IsValid():
		set = setAddr4
	}
	// Each field is padded to registers of 4 bytes.
	var key []byte
	if f.Addr.IsValid() {
		key = f.Addr.AsSlice()
	}
	// Address, protocol and port, in the order of the concatenation that the map's type
	// has.
	key = append(key, f.Proto, 0, 0, 0)
	key = append(binary.BigEndian.AppendUint16(key, f.Port), 0, 0)
	val := append(binary.BigEndian.AppendUint16(to.AsSlice(), f.to), 0, 0)
	return element{set, string(key), string(val)}
}

// claimsOf returns the host ports that a pod claims.
func claimsOf(one *pod) []claim {
	all := make([]claim, 0, len(one.forwards))
	for _, f := range one.forwards {
		all = append(all, f.claim)
	}
	return all
}

// hold binds sockets for all claims of the pod with that label, or for none of them if one fails.
// The caller holds the gate.
func (p *Plugin) hold(label string, all ...claim) error {
	err := withinNetns(p.ns, func() error { return p.held.Take(label, all...) })
	switch {
	case errors.Is(err, hostports.ErrTaken):
		return &network.Error{Code: network.AlreadyExists, Err: err}
	case errors.Is(err, hostports.ErrLimit):
		return &network.Error{Code: network.ResourceExhausted, Err: err}
	}
	return err
}
