package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// atPoint is called between the steps of a set-up; tests end the process there.
var atPoint = func(string) {}

// SetUp creates the pod's interface, its addresses and routes, and its host ports. Host
// ports that cannot be served are warnings in the result, not errors. After an error,
// TearDown removes the created parts.
func (p *Plugin) SetUp(ctx context.Context, a network.Attachment, netns string, saved []byte, _ *os.File) (network.Result, error) {
	return p.do(ctx, "set up", a.ID, func(ctx context.Context) (network.Result, error) {
		want, err := parsePlan(saved)
		if err != nil {
			return network.Result{}, network.Errorf(network.FailedPrecondition, "%w", err)
		}
		one := p.get(a.ID)
		// The plans of the record and in memory differ if the record's plan is of an earlier
		// process.
		if one == nil || one.plan != want {
			return network.Result{}, network.Errorf(network.FailedPrecondition, "%s has no such plan", a.ID)
		}
		// The path comes from the request; a symbolic link at its end is not
		// followed.
		ns, err := openNetns(netns, true)
		if err != nil {
			return network.Result{}, network.Errorf(network.FailedPrecondition, "network namespace: %w", err)
		}
		defer func() { _ = ns.Close() }()
		// For a pod in the node's network, SetUp would change the node's interfaces.
		if sameFile(ns, p.ns) {
			return network.Result{}, network.Errorf(network.InvalidArgument, "network namespace %s: want one of the pod's own, not the node's", netns)
		}
		return p.setUp(ctx, one, netns, ns)
	})
}

// setUp is SetUp, in the order in which a crash does the least harm: the parts that
// others can reach are created last.
func (p *Plugin) setUp(ctx context.Context, one *pod, path string, ns *os.File) (network.Result, error) {
	index, mtu, err := p.prepared(ctx, false)
	if err != nil {
		return network.Result{}, err
	}
	if subnet := p.layout().subnet; one.IPv4.Masked() != subnet {
		return network.Result{}, network.Errorf(network.Unavailable, "address %s: the subnet of pods is %s now", one.IPv4.Addr(), subnet)
	}
	// The guard comes before the interface, so that nothing passes the interface unchecked.
	if err := p.guard(ctx, one, true); err != nil {
		return network.Result{}, err
	}
	mac := macOf(one.IPv4.Addr())
	err = p.links.addVeth(one.Veth, index, mtu, ns, mac)
	switch {
	// The name is computed from the ID, so the interface is this pod's own, of an earlier attempt.
	case errors.Is(err, unix.EEXIST): // left by a killed agent
		if err := p.links.removeVeth(one.Veth); err != nil {
			return network.Result{}, fmt.Errorf("remove stale interface %s: %w", one.Veth, err)
		}
		err = p.links.addVeth(one.Veth, index, mtu, ns, mac)
	// Run has not handled the event yet: check the bridge, then try once more.
	case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL): // the bridge was removed
		if index, mtu, err = p.prepared(ctx, true); err == nil {
			// The node's end may exist without its bridge.
			_ = p.links.removeVeth(one.Veth)
			err = p.links.addVeth(one.Veth, index, mtu, ns, mac)
		}
	}
	// A bridge has at most 1024 ports (BR_MAX_PORTS).
	if errors.Is(err, unix.EXFULL) {
		return network.Result{}, network.Errorf(network.ResourceExhausted, "bridge %s has as many ports as the kernel allows", one.Bridge)
	}
	if err != nil {
		return network.Result{}, fmt.Errorf("add interface %s: %w", one.Veth, err)
	}
	atPoint("interface")
	if err := p.links.addNeighbours(index, one.plan); err != nil {
		return network.Result{}, err
	}
	if err := setUpPod(ns, one.plan); err != nil {
		return network.Result{}, fmt.Errorf("set up %s of the pod: %w", podIfname, err)
	}
	atPoint("up")
	if err := p.links.setPort(one.Veth, mac); err != nil {
		return network.Result{}, fmt.Errorf("set up port %s: %w", one.Veth, err)
	}
	// The first port of a bridge brings it up as well.
	p.links.settle(one.Veth)
	p.links.settle(one.Bridge)
	atPoint("addresses")
	// The caller has gone and will call TearDown, so no ports are published.
	if ctx.Err() != nil {
		return network.Result{}, late(ctx, "set up")
	}
	r := network.Result{Netns: path, IPs: one.ips(), Warnings: slices.Clone(one.warnings)}
	// Marked as serving without entries, so that Run keeps its interface at the bridge.
	if len(one.forwards) == 0 {
		p.serve(one, true)
		return r, nil
	}
	return r, p.publish(ctx, one)
}

// guard adds a pod's addresses to the table if admit is true. Otherwise it removes them, and the
// node's neighbour entries for them. It may be repeated.
func (p *Plugin) guard(ctx context.Context, one *pod, admit bool) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !admit && p.index != 0 && one.IPv4.IsValid() {
		if err := p.links.removeNeighbours(p.index, one.plan); err != nil {
			return err
		}
	}
	p.mu.Lock()
	all := senders(one.plan, p.subnet6.IsValid())
	had := one.guarded
	if p.feat.guard {
		one.guarded = admit
	}
	p.mu.Unlock()
	var add, del []element
	switch {
	// A missing table, such as after Reset, is created with all wanted entries.
	case !p.feat.guard || had == admit || !p.ready:
		return nil
	case admit:
		add = all
	default:
		del = all
	}
	if err := p.table.update(ctx, p.layout(), p.contents, add, del); err != nil {
		p.mu.Lock()
		one.guarded = had
		p.mu.Unlock()
		return fmt.Errorf("set addresses of port %s: %w", one.Veth, err)
	}
	return nil
}

// publish adds the pod's host ports to the table. Then it deletes the connections to the pod that
// had a port before. In this order, a connection that is opened in between reaches the new pod.
func (p *Plugin) publish(ctx context.Context, one *pod) error {
	if err := p.addPorts(ctx, one); err != nil {
		return fmt.Errorf("add host ports: %w", err)
	}
	atPoint("host ports")
	if !p.feat.conntrack {
		return nil
	}
	// The port works for new peers; only some existing connections may still go to the former pod.
	if err := p.links.forgetUDP(one.forwards, one.plan, false); err != nil {
		p.log.Warn("failed to delete stale connections", zap.String("pod", one.label), zap.Error(err))
	}
	return nil
}

// addPorts adds the entries of the pod's host ports to the table and marks the pod as serving, or
// does neither. It holds p.gate meanwhile, so that Run sees both or neither.
func (p *Plugin) addPorts(ctx context.Context, one *pod) error {
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return alone(ctx, p.ns, func() error {
		if err := p.takenElsewhere(one); err != nil {
			return err
		}
		if err := p.hold(one.label, claimsOf(one)...); err != nil {
			return err
		}
		p.serve(one, true)
		if err := p.table.update(ctx, p.layout(), p.contents, elementsOf(one), nil); err != nil {
			p.serve(one, false)
			p.held.Give(one.label)
			return err
		}
		return nil
	})
}

// takenElsewhere returns an error if another agent's table has a host port of the pod.
// Otherwise the order of the tables would decide which of the two pods gets the packets.
func (p *Plugin) takenElsewhere(one *pod) error {
	for _, f := range one.forwards {
		if by := p.table.served(f.element(one.plan)); by != "" {
			return network.Errorf(network.AlreadyExists, "host port %s is taken by a pod of another agent (table inet %s)", f.claim, by)
		}
	}
	return nil
}

// elementsOf returns the entries of a pod, in the order that change needs.
func elementsOf(one *pod) []element {
	all := make([]element, 0, len(one.forwards))
	for _, f := range one.forwards {
		all = append(all, f.element(one.plan))
	}
	slices.SortFunc(all, element.compare)
	return all
}

// TearDown removes the host ports, the interface and the address. It needs neither
// the pod's namespace nor the bridge, and may be repeated.
func (p *Plugin) TearDown(ctx context.Context, a network.Attachment, _ string, saved []byte, _ *os.File) error {
	_, err := p.do(ctx, "tear down", a.ID, func(ctx context.Context) (network.Result, error) {
		return network.Result{}, p.tearDown(ctx, a, saved)
	})
	return err
}

// tearDown does the work of TearDown. It frees the address last, when nothing can reach
// the pod any more.
func (p *Plugin) tearDown(ctx context.Context, a network.Attachment, saved []byte) error {
	one := p.get(a.ID)
	// The attachment has to end even if its record is damaged, or its address would never be free
	// again.
	what, err := parsePlan(saved)
	if err != nil {
		// The names can be derived from the ID.
		what = plan{Veth: vethName(p.cfg.VethPrefix, a.ID)}
		if one != nil && one.Veth != "" {
			what = one.plan
		}
		p.log.Warn("removing pod network without its record; using the names that follow from its ID", zap.String("id", a.ID), zap.Error(err))
	}
	// A pod that is not in memory has no entries in the table.
	if one != nil {
		if err := p.withdraw(ctx, one); err != nil {
			return err
		}
	}
	atPoint("no host ports")
	if err := p.links.removeVeth(what.Veth); err != nil {
		return fmt.Errorf("remove interface %s: %w", what.Veth, err)
	}
	atPoint("no interface")
	if one != nil {
		if err := p.guard(ctx, one, false); err != nil {
			return err
		}
	}
	// After the interface is removed, so that the pod cannot open new connections.
	if one != nil && len(one.forwards) > 0 && p.feat.conntrack {
		if err := p.links.forgetUDP(one.forwards, what, true); err != nil {
			return fmt.Errorf("delete stale connections: %w", err)
		}
	}
	// Last: from here on the address and the ports are free.
	p.drop(a.ID)
	return nil
}

// withdraw removes the pod's host ports from the table. After an error the pod still counts as
// serving, so that the next TearDown tries again.
func (p *Plugin) withdraw(ctx context.Context, one *pod) error {
	if len(one.forwards) == 0 {
		p.serve(one, false)
		return nil
	}
	leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p.mu.Lock()
	had := one.serving
	p.mu.Unlock()
	// Never published, or taken back by an earlier try.
	if !had {
		return nil
	}
	p.serve(one, false)
	if !p.ready { // the content of the table is not known
		err = p.prepare(ctx)
	} else {
		err = p.table.update(ctx, p.layout(), p.contents, nil, p.listed(one))
	}
	if err != nil {
		p.serve(one, true)
		return fmt.Errorf("remove host ports: %w", err)
	}
	p.held.Give(one.label)
	return nil
}

// listed returns the entries of a pod that the table has. Deleting an entry that the table does not
// have would fail the whole transaction.
func (p *Plugin) listed(one *pod) []element {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := elementsOf(one)
	return slices.DeleteFunc(all, func(e element) bool {
		for _, f := range one.forwards {
			if f.element(one.plan) == e {
				return p.pods[p.claims[f.claim]] != one
			}
		}
		return true
	})
}
