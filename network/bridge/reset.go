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

// Check returns an error unless the pod's interface is a port of the bridge and the
// table has the pod's entries. It changes nothing. ctx limits the wait for the gate;
// calls of the kernel have the deadlines of the sockets.
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
		// The name in the plan is used: the configured prefix may have changed.
		link, err := p.links.find(want.Veth)
		switch {
		case err != nil:
			return network.Result{}, err
		case link == nil:
			return network.Result{}, fmt.Errorf("interface %s is missing", want.Veth)
		case !p.ready || link.Attrs().MasterIndex != p.index:
			return network.Result{}, fmt.Errorf("interface %s is not a port of bridge %s", want.Veth, want.Bridge)
		}
		// The whole table is compared, not only this pod's entries: missing rules affect all pods.
		ok, err := p.table.holds(p.layout(), p.contents())
		if err == nil && !ok {
			err = fmt.Errorf("table inet %s has missing or additional rules", p.cfg.Table)
		}
		return network.Result{}, err
	})
	return err
}

// Reset removes everything that the plugin made on the node: the interfaces of
// pods, the bridge, the table, the settings, the state. Pods then have no network.
// Attachments stay in memory until TearDown, which finds nothing to remove. The
// next pod creates everything again.
func (p *Plugin) Reset(ctx context.Context) error {
	_, err := p.do(ctx, "reset", "", func(ctx context.Context) (network.Result, error) {
		leave, err := p.enter(ctx)
		if err != nil {
			return network.Result{}, err
		}
		defer leave()
		return network.Result{}, alone(ctx, p.ns, func() error { return p.reset(ctx) })
	})
	return err
}

// reset is Reset for a caller that holds the gate. It continues after a failure, and
// returns all errors.
func (p *Plugin) reset(ctx context.Context) error {
	p.ready = false
	var errs []error
	p.mu.Lock()
	bridge := p.name
	veths := map[string]bool{}
	// Their entries are removed with the table, so none of them is served any more.
	for _, one := range p.pods {
		veths[one.Veth] = true
		one.serving, one.guarded = false, false
		p.held.Give(one.label)
	}
	p.mu.Unlock()
	link, err := p.links.find(bridge)
	errs = append(errs, err)
	// Ports without a record are removed as well, but never a bridge of another
	// program.
	if link != nil && oursBridge(link) {
		found, err := p.links.ports(link.Attrs().Index, p.cfg.VethPrefix)
		errs = append(errs, err)
		for _, name := range found {
			veths[name] = true
		}
	}
	// Before the bridge, as a removal of the bridge would leave them without a master.
	errs = append(errs, p.links.removeVeths(slices.Sorted(maps.Keys(veths))...))
	if link != nil && oursBridge(link) {
		if err := p.links.h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove bridge %s: %w", bridge, err))
		}
	}
	// Pods of other agents need forwarding; the last agent turns it off.
	set := p.state
	v4, v6, err := p.table.dropsOthers(p.cfg.Table)
	errs = append(errs, err)
	if v4 || err != nil {
		set.Forward4 = ""
	}
	if v6 || err != nil {
		set.Forward6 = ""
	}
	// Forwarding is turned off before the rules that drop other forwarding are
	// removed.
	errs = append(errs, withinNetns(p.ns, func() error { return undoForwarding(set, p.boot) }))
	errs = append(errs, p.table.remove(ctx, p.cfg.Table))
	// After a failure the state stays on the disk, so that another Reset knows the
	// settings.
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.state = state{Version: stateVersion}
	p.mu.Lock()
	p.drop4, p.drop6 = false, false
	p.bridgeIndex = 0
	// The kernel's missing features stay known; everything else is gone.
	p.notes = notes{conntrack: p.notes.conntrack, guard: p.notes.guard}
	p.mu.Unlock()
	// Done last: after a crash before this point, Reset is repeated and finds less to remove.
	return p.dir.Remove(stateFile)
}
