package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/internal/hostports"
	"github.com/nodewright/nodewright/network"
)

// New returns a plugin for the network namespace of the calling thread. It returns
// all reasons why the plugin cannot work: it creates everything in a temporary
// network namespace, and changes nothing on the node. Close releases the resources
// of New. A caller that has changed its thread's namespace must have locked the
// thread.
func New(cfg Config) (*Plugin, error) {
	cfg = cfg.withDefaults()
	// All reasons are collected, so that the owner of a node sees them at once.
	errs := cfg.validate()
	ns, err := ownNetns()
	if err != nil {
		return nil, refused(append(errs, err))
	}
	p := &Plugin{
		cfg: cfg, log: cfg.Log, ns: ns, name: cfg.Name, subnet: cfg.Subnet, subnet6: cfg.Subnet6, dir: stateDir(cfg.StateDir),
		events: newInbox(), gate: make(chan struct{}, 1), busy: map[string]chan struct{}{},
		pods: map[string]*pod{}, claims: map[claim]string{},
		held: hostports.Held{Reserved: cfg.Reserved, Listen: cfg.ListenOnHostPorts},
		// Until Recovered has run, no pod can be attached: it could get an address that another pod
		// has.
		broken: network.Errorf(network.Unavailable, "the records of attachments were not read yet"),
	}
	p.ops.Limit = maxOperations
	// The kernel is not probed with invalid names.
	if len(errs) == 0 {
		errs = p.look()
	}
	// After an error, nothing stays open and nothing was changed on the node.
	if err := errors.Join(errs...); err != nil {
		p.Close()
		return nil, refused(errs)
	}
	return p, nil
}

// refused joins all reasons into one FailedPrecondition error.
func refused(errs []error) error {
	return &network.Error{Code: network.FailedPrecondition, Err: fmt.Errorf("the bridge network cannot work: %w", errors.Join(errs...))}
}

// look reads the state of the node and returns an error for each obstacle. It reads the
// kernel's state and the files of StateDir, and chooses the subnet. p is not shared
// yet.
func (p *Plugin) look() []error {
	feat, err := probe(p.cfg)
	errs := compact([]error{err})
	p.feat = feat
	// This is a sentence of Advice, not an error: it only affects UDP host ports that move to
	// another pod.
	if len(errs) == 0 && !feat.conntrack {
		p.notes.conntrack = "the kernel does not list connections (module nf_conntrack_netlink): peers of a UDP host port that go on sending may reach whoever had it before"
	}
	if len(errs) == 0 && !feat.guard {
		p.notes.guard = "the kernel has no nf_tables of family bridge (CONFIG_NF_TABLES_BRIDGE): a pod with the capability NET_RAW can take other pods' addresses and traffic"
		p.log.Warn("failed to restrict pods to their own source addresses", zap.String("advice", p.notes.guard))
	}
	p.table = &table{ns: int(p.ns.Fd()), name: p.cfg.Table, flags: feat.tableFlags, wrote: p.remember}
	if p.links, err = newLinks(p.ns); err != nil {
		return compact(append(errs, err))
	}
	// A damaged state is replaced by an empty one; only a disk that cannot be read is an error.
	if p.state, err = readState(p.dir, p.log); err != nil {
		errs = append(errs, err)
	}
	if p.boot, err = bootid.Read(os.DirFS("/")); err != nil { //nolint:forbidigo // one file of the kernel's, and in bounds
		errs = append(errs, err)
	}
	link, err := p.links.find(p.name)
	errs = append(errs, err)
	var had netip.Prefix // subnet of the existing bridge
	if link != nil {
		// Another program has the name: its link is not changed.
		if !oursBridge(link) {
			errs = append(errs, fmt.Errorf("Config.Name %s: the node has a %s of that name that was not made by this agent", p.name, link.Type()))
		}
		addrs, err := p.links.addresses(link)
		errs = append(errs, err)
		// The first address of a subnet is the gateway's: so the bridge itself shows
		// which subnet its pods have, even if the state is lost.
		for _, a := range addrs {
			if prefix, err := prefixOf(a.IPNet); err == nil && prefix.Addr() == gateway(prefix) && validSubnet(prefix.Masked()) == nil {
				had = prefix.Masked()
			}
		}
	}
	all, err := p.links.taken(p.name, append([]netip.Prefix{p.subnet, p.subnet6}, ranges...)...)
	errs = append(errs, err)
	// In this order: the configured subnet, the stored one, the subnet of the existing bridge, a
	// new one.
	switch {
	case p.cfg.Subnet.IsValid():
		// Routes over the subnet are the bridge's own if the bridge has this subnet already.
		if t, found := overlap(p.cfg.Subnet, all); found && had != p.cfg.Subnet {
			errs = append(errs, fmt.Errorf("%s %s overlaps %s", p.cfg.subnetName(), p.cfg.Subnet, t.by))
		}
	case p.state.Subnet.IsValid():
		p.subnet = p.state.Subnet
	case had.IsValid():
		p.subnet = had
	default:
		p.subnet, err = chooseSubnet(append(all, nameServers(p.cfg.ResolvConf)...))
		p.fresh = true
		errs = append(errs, err)
	}
	// If the bridge exists, the overlap is most likely its own route.
	if p.subnet6.IsValid() && link == nil {
		if t, found := overlap(p.subnet6, all); found {
			errs = append(errs, fmt.Errorf("%s %s overlaps %s", p.cfg.subnet6Name(), p.subnet6, t.by))
		}
	}
	return compact(errs)
}

// compact removes the nil elements from a list of errors.
func compact(errs []error) []error {
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
