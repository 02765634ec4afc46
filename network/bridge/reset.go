package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// Check reports whether the pod's interface is a port of the bridge, and whether
// the table holds what it is to hold.
func (p *Plugin) Check(ctx context.Context, k network.Kept, _ *os.File) error {
	_, err := p.do(ctx, "check", k.Attachment.ID, func(ctx context.Context) (network.Result, error) {
		want, err := parsePlan(k.Saved)
		if err != nil {
			return network.Result{}, err
		}
		leave, err := p.enter(ctx)
		if err != nil {
			return network.Result{}, err
		}
		defer leave()
		link, err := p.links.find(want.Veth)
		switch {
		case err != nil:
			return network.Result{}, err
		case link == nil:
			return network.Result{}, fmt.Errorf("interface %s is missing", want.Veth)
		case !p.ready || link.Attrs().MasterIndex != p.index:
			return network.Result{}, fmt.Errorf("interface %s is no port of bridge %s", want.Veth, want.Bridge)
		}
		ok, err := p.table.holds(p.layout(), p.serve(nil, false))
		if err == nil && !ok {
			err = fmt.Errorf("table inet %s lacks rules, or has others", p.cfg.Table)
		}
		return network.Result{}, err
	})
	return err
}

// Reset takes back all that the plugin made on the node: the interfaces of pods,
// the bridge, the table, the settings, the state. No pod has a network then.
func (p *Plugin) Reset(ctx context.Context) error {
	_, err := p.do(ctx, "reset", "", func(ctx context.Context) (network.Result, error) {
		leave, err := p.enter(ctx)
		if err != nil {
			return network.Result{}, err
		}
		defer leave()
		return network.Result{}, p.reset(ctx)
	})
	return err
}

func (p *Plugin) reset(ctx context.Context) error {
	p.ready = false
	var errs []error
	p.mu.Lock()
	bridge := p.name
	veths := map[string]bool{}
	for _, one := range p.pods {
		veths[one.Veth] = true
		one.serving = false
	}
	p.mu.Unlock()
	link, err := p.links.find(bridge)
	errs = append(errs, err)
	if link != nil && oursBridge(link) {
		found, err := p.links.ports(link.Attrs().Index, p.cfg.VethPrefix)
		errs = append(errs, err)
		for _, name := range found {
			veths[name] = true
		}
	}
	errs = append(errs, p.links.removeVeths(slices.Sorted(maps.Keys(veths))...))
	if link != nil && oursBridge(link) {
		if err := p.links.h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove bridge %s: %w", bridge, err))
		}
	}
	// Forwarding ends before the rules that keep that of others dropped.
	errs = append(errs, withinNetns(p.ns, func() error { return undoForwarding(p.state, p.boot) }))
	errs = append(errs, p.table.remove(ctx, p.cfg.Table))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.state = state{Version: stateVersion}
	p.mu.Lock()
	p.drop4, p.drop6 = false, false
	p.bridgeIndex = 0
	p.notes = notes{conntrack: p.notes.conntrack}
	p.mu.Unlock()
	return p.dir.Remove(stateFile)
}
