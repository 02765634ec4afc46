package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/network"
)

// Recovered adopts the network of an earlier process: it updates the table for the
// existing pods, and removes the interfaces and entries of all other pods. If a change
// of the node fails, Recovered returns nil: Status reports the failure, and Run tries
// again. Only a second call of Recovered returns an error.
func (p *Plugin) Recovered(ctx context.Context, kept []network.Kept) error {
	tables, err := p.adopt(kept)
	if err != nil {
		return err
	}
	_, err = p.do(ctx, "recover", "", func(ctx context.Context) (network.Result, error) {
		return network.Result{}, p.recover(ctx, len(kept) > 0, tables)
	})
	if err != nil {
		// Run tries again; existing pods are not changed.
		p.log.Error("failed to restore the bridge network", zap.Error(err))
	}
	p.setBroken(err)
	return nil
}

// adopt stores the attachments of earlier processes in memory, and changes nothing else. It
// returns the names of the other tables that have their host ports.
func (p *Plugin) adopt(kept []network.Kept) (tables []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.recovered {
		return nil, network.Errorf(network.FailedPrecondition, "bridge network: recovered twice")
	}
	plans := make([]plan, len(kept))
	var latest, latest6 plan
	for i, k := range kept {
		// A pod without a readable plan is adopted below, by its ID and its result.
		one, err := parsePlan(k.Saved)
		if err != nil {
			p.log.Warn("ignored the damaged record of a pod's network", zap.String("id", k.Attachment.ID), zap.Error(err))
			continue
		}
		plans[i] = one
		// The plan with the highest number shows which subnet is in use, and after which address
		// the search for free ones continues.
		if one.Number > latest.Number {
			latest = one
		}
		if one.IPv6.IsValid() && one.Number > latest6.Number {
			latest6 = one
		}
		// The configured name of the table has changed; ports have to be removed from the old
		// table.
		if one.Table != p.cfg.Table && !slices.Contains(tables, one.Table) {
			tables = append(tables, one.Table)
		}
	}
	p.keepSubnet(latest, latest6.IPv6.Masked())
	p.addrs = newAddresses(p.subnet)
	p.number = latest.Number
	if latest.IPv4.IsValid() {
		p.addrs.startAfter(latest.IPv4.Addr())
	}
	// Attachments that are to be torn down are included: they keep their addresses until then.
	for i, k := range kept {
		// Attachments without a result were never attached, or are being torn down: they have no
		// entries.
		one := &pod{plan: plans[i], label: label(k.Attachment), serving: k.Result != nil}
		if one.Version == 0 { // damaged
			one.Veth = vethName(p.cfg.VethPrefix, k.Attachment.ID)
			one.Bridge, one.Table = p.name, p.cfg.Table
			if k.Result != nil {
				one.IPv4, one.IPv6 = addressesOf(k.Result.IPs, p.subnet, p.subnet6)
			}
		}
		if one.IPv4.IsValid() {
			p.addrs.take(one.IPv4.Addr())
			// If the ports cannot be read either, the pod has no forwards.
			one.forwards, one.warnings, _ = forwards(k.Attachment.Ports, one.IPv6.IsValid())
			one.guarded = p.feat.guard
		}
		p.add(k.Attachment.ID, one)
	}
	p.recovered = true
	return tables, nil
}

// keepSubnet keeps the subnet of the latest pod, even if another one is configured now.
// The bridge has the gateway of only one subnet: with another subnet, existing pods
// would lose their gateway. The caller holds p.mu.
func (p *Plugin) keepSubnet(latest plan, subnet6 netip.Prefix) {
	if latest.Version == 0 {
		return
	}
	subnet := latest.IPv4.Masked()
	// The sentence stays in Advice until a start without pods of the old subnet.
	if latest.Bridge != p.name || subnet != p.subnet || subnet6.IsValid() && subnet6 != p.subnet6 {
		p.notes.subnet = fmt.Sprintf("pods have bridge %s and subnets %s; bridge %s and subnets %s take effect when the agent starts without such pods",
			latest.Bridge, subnets(subnet, subnet6), p.name, subnets(p.subnet, p.subnet6))
		p.log.Warn("ignored the configured bridge and subnets: existing pods use others", zap.String("bridge", latest.Bridge), zap.String("subnets", subnets(subnet, subnet6)),
			zap.String("configuredBridge", p.name), zap.String("configuredSubnets", subnets(p.subnet, p.subnet6)))
	}
	p.name, p.subnet, p.fresh = latest.Bridge, subnet, false
	switch {
	case subnet6.IsValid():
		p.subnet6 = subnet6
	// The configured IPv6 subnet was checked against the configured IPv4 one, not
	// against this.
	case p.subnet6.IsValid() && validSubnet6(p.subnet6, subnet) != nil:
		p.subnet6 = netip.Prefix{} // too small for this one
	}
}

// subnets returns the text of the subnets for a message.
func subnets(v4, v6 netip.Prefix) string {
	if v6.IsValid() {
		return v4.String() + " and " + v6.String()
	}
	return v4.String()
}

// addressesOf finds a pod's addresses in its result. Addresses of other subnets are ignored.
// Without an address of the subnet, the result is zero.
func addressesOf(ips []netip.Addr, subnet, subnet6 netip.Prefix) (v4, v6 netip.Prefix) {
	for _, ip := range ips {
		switch {
		case subnet.Contains(ip):
			v4 = netip.PrefixFrom(ip, subnet.Bits())
		case subnet6.IsValid() && subnet6.Contains(ip):
			v6 = netip.PrefixFrom(ip, subnet6.Bits())
		}
	}
	return v4, v6
}

// recover is the part of Recovered that changes the node. hasPods reports that there are
// attachments. tables are the names of tables that earlier configurations of this plugin used.
// The caller holds the gate.
func (p *Plugin) recover(ctx context.Context, hasPods bool, tables []string) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !hasPods {
		// Before the first pod the bridge does not exist, unless an earlier agent left it.
		link, err := p.links.find(p.layout().bridge)
		if err != nil {
			return err
		}
		there, err := p.table.exists(p.cfg.Table)
		if err != nil || link == nil && len(there) == 0 {
			return err
		}
	}
	p.holdAgain()
	if err := p.prepare(ctx); err != nil {
		return err
	}
	// From here on, all steps are tried even if one fails.
	var errs []error
	for _, name := range tables {
		errs = append(errs, p.table.remove(ctx, name))
	}
	// Interfaces with this plugin's names whose pods have no record: the record was
	// lost, or the agent was killed before it wrote one.
	found, err := p.links.ports(p.index, p.cfg.VethPrefix)
	errs = append(errs, err)
	known := map[string]bool{}
	p.mu.Lock()
	for _, one := range p.pods {
		known[one.Veth] = true
	}
	p.mu.Unlock()
	// Pods with damaged records are known by their IDs, so their interfaces are kept.
	stale := slices.DeleteFunc(found, func(name string) bool { return known[name] })
	if len(stale) > 0 {
		errs = append(errs, p.links.removeVeths(stale...))
		p.log.Info("removed stale interfaces", zap.Strings("interfaces", stale))
	}
	return errors.Join(errs...)
}

// holdAgain takes the host ports of pods of an earlier process. If a process of the node has
// taken a port meanwhile, or the port is reserved now, the port is not served any more. The
// caller holds the gate.
func (p *Plugin) holdAgain() {
	p.mu.Lock()
	all := map[claim]*pod{}
	for c, id := range p.claims {
		if p.pods[id].serving {
			all[c] = p.pods[id]
		}
	}
	p.mu.Unlock()
	for c, one := range all {
		err := p.hold(one.label, c)
		// Only this error means that a process has the port; after another error, the port stays
		// served.
		if network.CodeOf(err) != network.AlreadyExists {
			continue
		}
		p.log.Error("removed host port of pod: a process of the node listens on it", zap.String("pod", one.label), zap.Error(err))
		p.mu.Lock()
		delete(p.claims, c)
		p.mu.Unlock()
	}
}
