package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"
)

// prepared creates the parts that all pods share, unless they were created before. If again is
// true, it checks existing parts. It returns the index and the MTU of the bridge. The node is
// changed at the first pod and not before: an agent without pods leaves no trace.
func (p *Plugin) prepared(ctx context.Context, again bool) (index, mtu int, err error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	switch {
	case !p.ready:
		err = p.prepare(ctx)
	case again:
		err = p.ensureBridge()
	}
	// If only the caller's time ran out, the state of the node is unknown, so Status keeps its
	// result.
	if err != nil && ctx.Err() == nil {
		p.setBroken(err)
		p.events.put(unsure) // Run tries again and logs the result
	}
	return p.index, p.mtu, err
}

// prepare creates the table, turns forwarding on, and creates the bridge. The caller holds the
// gate. After a failure p.ready stays false, so that the next call starts again; each step is
// idempotent.
func (p *Plugin) prepare(ctx context.Context) error {
	return alone(ctx, p.ns, func() error {
		if err := p.freshSubnet(); err != nil {
			return err
		}
		if err := p.planForwarding(ctx); err != nil {
			return err
		}
		if err := p.ensureBridge(); err != nil {
			return err
		}
		atPoint("bridge")
		p.ready, p.fresh = true, false
		return nil
	})
}

// freshSubnet chooses another subnet if another program has taken the one that New
// chose, such as another agent that started at the same time. Pods that were planned
// with addresses of the first subnet are refused, and attached again. The caller holds
// the gate.
func (p *Plugin) freshSubnet() error {
	if !p.fresh {
		return nil
	}
	all, err := p.links.taken(p.name, append([]netip.Prefix{p.subnet6}, ranges...)...)
	if err != nil {
		return err
	}
	all = append(all, nameServers(p.cfg.ResolvConf)...)
	if _, found := overlap(p.subnet, all); !found {
		return nil
	}
	subnet, err := chooseSubnet(all)
	if err != nil {
		return err
	}
	p.log.Info("chose another subnet: another program uses the first one", zap.Stringer("was", p.subnet), zap.Stringer("subnet", subnet))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subnet, p.addrs = subnet, newAddresses(subnet)
	return nil
}

// planForwarding creates the table, and then turns forwarding on. The caller holds the
// gate. The order makes a crash harmless: first it writes the state to the disk, then
// it creates the rules that drop other forwarding, and only then it changes the
// setting. In another order, a crash could leave a node that forwards all packets.
func (p *Plugin) planForwarding(ctx context.Context) error {
	l, kept := p.layout(), p.state
	// Forwarding that another agent has turned on also counts as turned on by this one, until the
	// last agent turns it off. If the state was lost, the table of an earlier process shows it.
	v4, v6, err := p.table.dropsOthers("")
	if err != nil {
		return fmt.Errorf("read table inet %s: %w", p.cfg.Table, err)
	}
	if v4 {
		p.state.Forward4 = p.boot
	}
	if v6 && l.has6() {
		p.state.Forward6 = p.boot
	}
	var f forwarding
	if err := withinNetns(p.ns, func() error {
		v4, v6, err := forwardingNow(l.has6())
		if err != nil {
			return fmt.Errorf("read forwarding: %w", err)
		}
		f = planForwarding(v4, v6, l.has6(), p.boot, p.state)
		// Determined before forwarding is on: afterwards the affected interfaces are unknown.
		if f.set6 {
			f.ours.AcceptRA, err = raThatWouldEnd()
		}
		return err
	}); err != nil {
		return err
	}
	// Only a chosen subnet is stored: a configured one is known.
	if !p.cfg.Subnet.IsValid() {
		f.ours.Subnet = l.subnet
	}
	// Writing the state syncs the disk, so it is written only if it differs.
	if !sameState(f.ours, kept) {
		if err := writeState(p.dir, f.ours); err != nil {
			return fmt.Errorf("write state: %w", err)
		}
	}
	p.state = f.ours
	p.mu.Lock()
	p.drop4, p.drop6 = p.state.Forward4 != "", p.state.Forward6 != ""
	p.mu.Unlock()
	atPoint("state")
	// The table includes the entries of existing pods: their host ports must not be missing for a
	// moment.
	if err := p.table.take(ctx, p.layout(), p.contents()); err != nil {
		return err
	}
	atPoint("table")
	if err := withinNetns(p.ns, f.apply); err != nil {
		return err
	}
	if f.set4 || f.set6 {
		p.log.Info("enabled IP forwarding for pods; other packets are still not forwarded", zap.Bool("ipv4", f.set4), zap.Bool("ipv6", f.set6))
	}
	p.mu.Lock()
	p.notes.forwarding = forwardingNote(p.drop4, p.drop6)
	p.mu.Unlock()
	return nil
}

// sameState reports whether two states would be stored as the same file.
func sameState(a, b state) bool {
	return a.Version == b.Version && a.Subnet == b.Subnet && a.Forward4 == b.Forward4 && a.Forward6 == b.Forward6 && slices.Equal(a.AcceptRA, b.AcceptRA)
}

// ensureBridge creates or repairs the bridge, with the pods' interfaces as its ports.
// The caller holds the gate. It also restores a bridge that was removed.
func (p *Plugin) ensureBridge() error {
	l := p.layout()
	// Read each time, since a default route may appear after the agent's start. An existing bridge
	// keeps its MTU; new pods get this one.
	mtu := p.cfg.MTU
	if mtu == 0 {
		mtu = p.links.defaultRouteMTU()
	}
	known := p.ready && p.index != 0
	index, err := p.links.ensureBridge(bridgeSpec{name: l.bridge, mtu: mtu, subnet: l.subnet, subnet6: l.subnet6})
	if err != nil {
		return err
	}
	known = known && p.index == index
	p.index, p.mtu = index, mtu
	p.mu.Lock()
	p.bridgeIndex = uint32(index)
	p.mu.Unlock()
	return p.links.join(index, p.attached(), !known)
}

// attached returns the plans of attached pods. Pods whose SetUp is running are left
// out: addVeth makes their interfaces ports itself.
func (p *Plugin) attached() []plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []plan
	for _, one := range p.pods {
		if one.serving && one.Bridge == p.name {
			all = append(all, one.plan)
		}
	}
	return all
}
