package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/nodewright/nodewright/network"
)

// validID matches IDs: they are used in file names and messages.
var validID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

// Plan allocates an address and the host ports. For an ID that has a plan it returns the same
// one. It changes only memory, and does not block. The method drop undoes a plan.
func (p *Plugin) Plan(_ context.Context, a network.Attachment) ([]byte, error) {
	if !validID.MatchString(a.ID) {
		return nil, network.Errorf(network.InvalidArgument, "id %.140q: want [a-zA-Z0-9][a-zA-Z0-9_.-]* of at most 128 bytes", a.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Until Recovered has run, the addresses of existing pods are unknown.
	if !p.recovered {
		return nil, p.broken
	}
	// The address families are those of the subnets in use, not of the
	// configuration.
	all, warnings, err := forwards(a.Ports, p.subnet6.IsValid())
	if err != nil {
		return nil, err
	}
	if old := p.pods[a.ID]; old != nil {
		// The same ID with other ports is another attachment; the old one has to be torn down
		// first.
		if old.serving || !slices.Equal(old.forwards, all) {
			return nil, network.Errorf(network.FailedPrecondition, "%s has an attachment already", a.ID)
		}
		return old.bytes(), nil
	}
	// Nothing is claimed before all ports have been checked: either all are claimed or none.
	for _, f := range all {
		if id, taken := p.claims[f.claim]; taken {
			return nil, network.Errorf(network.AlreadyExists, "host port %s is taken by pod %s", f.claim, p.pods[id].label)
		}
	}
	addr, err := p.addrs.give()
	if err != nil {
		return nil, network.Errorf(network.ResourceExhausted, "no free address in %s (%d in use)", p.subnet, p.addrs.inUse())
	}
	// Records are written one by one. After a restart, the number shows which address was allocated
	// last.
	p.number++
	one := &pod{label: label(a), forwards: all, warnings: append(warnings, unserved(a)...), plan: plan{
		Version: planVersion, Number: p.number, Bridge: p.name, Table: p.cfg.Table, Veth: vethName(p.cfg.VethPrefix, a.ID),
		IPv4: netip.PrefixFrom(addr, p.subnet.Bits()),
	}}
	if p.subnet6.IsValid() {
		// The IPv6 address is computed from the IPv4 address, so only IPv4 addresses are allocated.
		one.IPv6 = netip.PrefixFrom(twin(addr, p.subnet, p.subnet6), p.subnet6.Bits())
	}
	p.add(a.ID, one)
	return one.bytes(), nil
}

// add stores a pod in memory. The caller holds p.mu and has allocated the address.
func (p *Plugin) add(id string, one *pod) {
	p.pods[id] = one
	for _, f := range one.forwards {
		// Damaged records may claim a port twice: the first one keeps it.
		if _, taken := p.claims[f.claim]; !taken {
			p.claims[f.claim] = id
		}
	}
}

// drop removes a pod from memory, which frees its address and ports. It is called
// once nothing of the pod is left on the node: otherwise packets for the next owner
// of the address would reach the old pod.
func (p *Plugin) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.pods[id]
	if one == nil {
		return
	}
	delete(p.pods, id)
	for _, f := range one.forwards {
		if p.claims[f.claim] == id {
			delete(p.claims, f.claim)
		}
	}
	// The address stays allocated while a damaged record gives it to another pod as
	// well.
	if addr := one.IPv4.Addr(); addr.IsValid() && !p.hasAddress(addr) {
		p.addrs.free(addr)
	}
}

// hasAddress reports whether any pod has the address. After a restart two pods may
// have the same one if records are damaged. The caller holds p.mu.
func (p *Plugin) hasAddress(addr netip.Addr) bool {
	for _, one := range p.pods {
		if one.IPv4.Addr() == addr {
			return true
		}
	}
	return false
}

// label returns the attachment's name for people: the known parts of namespace,
// name and ID of the pod.
func label(a network.Attachment) string {
	if a.Name == "" {
		return a.ID
	}
	return fmt.Sprintf("%s/%s (%s)", a.Namespace, a.Name, a.ID)
}

// unserved returns warnings about requested features that are not supported. The
// annotations are those of the CNI plugin bandwidth in Kubernetes.
func unserved(a network.Attachment) []string {
	limited := a.Ingress != 0 || a.Egress != 0
	for _, name := range []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"} {
		limited = limited || a.Annotations[name] != ""
	}
	if limited {
		return []string{"bandwidth limits are not served by the bridge network"}
	}
	return nil
}

// get returns the pod of an ID, or nil. The caller must not read serving and guarded
// without p.mu; the other fields do not change.
func (p *Plugin) get(id string) *pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[id]
}

// serve records whether a pod's host ports are in the table.
func (p *Plugin) serve(one *pod, serving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.serving = serving
}

// contents returns the wanted entries of the table. Pods that are being set up or torn down have no
// host ports. The result is a copy.
func (p *Plugin) contents() contents {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := contents{}
	for id, one := range p.pods {
		if one.guarded {
			for _, e := range senders(one.plan, p.subnet6.IsValid()) {
				c.add(e)
			}
		}
		if !one.serving {
			continue
		}
		for _, f := range one.forwards {
			// A port belongs to one pod, even if damaged records say otherwise. Without an IPv6
			// subnet the table has no maps for IPv6 ports.
			if p.claims[f.claim] == id && (!f.V6 || one.IPv6.IsValid() && p.subnet6.IsValid()) {
				c.add(f.element(one.plan))
			}
		}
	}
	return c
}

// layout returns the current layout of the rules. The caller holds the gate.
func (p *Plugin) layout() layout {
	p.mu.Lock()
	defer p.mu.Unlock()
	return layout{bridge: p.name, subnet: p.subnet, subnet6: p.subnet6, drop4: p.drop4, drop6: p.drop6, guard: p.feat.guard, reach: p.cfg.Reach}
}
