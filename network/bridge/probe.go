package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout limits how long the kernel may take to load its modules and create the
// table.
const probeTimeout = 30 * time.Second

// features are the optional features of the kernel.
type features struct {
	// tableFlags are the flags with which the socket owns the table. They are 0 for kernels
	// before 6.9.
	tableFlags uint32
	// ipv6 is false if the kernel lacks IPv6. It is true even if IPv6 is disabled for
	// all interfaces.
	ipv6      bool
	conntrack bool // connections can be listed and deleted
	guard     bool // nf_tables has the family bridge
}

// probe creates everything once in a temporary network namespace, and returns all reasons why it
// cannot be created on the node. The version of a kernel would not be enough: distributions
// backport features, and any kernel may lack modules.
func probe(c Config) (features, error) {
	if err := privileges(); err != nil {
		return features{}, err
	}
	var f features
	// Modules that this loads stay loaded; everything else ends with the namespace.
	err := inFreshNetns(func() error {
		ns, err := ownNetns()
		if err != nil {
			return err
		}
		defer func() { _ = ns.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		f.ipv6 = hasIPv6()
		// All possible rules: drop4 and drop6 add some.
		l := layout{bridge: c.Name, subnet: netip.PrefixFrom(ranges[0].Addr(), subnetBits), drop4: true, drop6: true}
		var errs []error
		// A subnet that the kernel does not support is an error, even though pods could be attached
		// without it.
		if c.Subnet6.IsValid() && !f.ipv6 {
			errs = append(errs, fmt.Errorf("%s %s: the kernel has no IPv6", c.subnet6Name(), c.Subnet6))
		}
		if c.Subnet6.IsValid() && f.ipv6 {
			l.subnet6 = c.Subnet6
		}
		f.conntrack, err = probeLinks(c, ns)
		errs = append(errs, err)
		t := &table{ns: int(ns.Fd()), name: c.Table}
		defer t.close()
		l.reach = c.Reach
		if f.tableFlags, err = probeTable(ctx, t, l); err == nil {
			f.guard = probeGuard(ctx, t, l) == nil
		}
		return errors.Join(append(errs, err)...)
	})
	return f, err
}

// privileges returns an error for missing capabilities. The kernel checks capabilities, not the
// user ID.
func privileges() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	// Each one with its reason, for the author of the agent's unit file.
	var errs []error
	for _, c := range []struct {
		bit  int
		name string
		why  string
	}{
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "interfaces, routes and rules are made with it"},
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "pods' network namespaces are entered with it"},
	} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			errs = append(errs, fmt.Errorf("the agent lacks %s: %s (%w)", c.name, c.why, unix.EPERM))
		}
	}
	return errors.Join(errs...)
}

// probeLinks checks that the kernel supports the interfaces of pods: it creates a bridge and a port
// in the namespace ns, through sockets of ns. conntrack reports whether the kernel lists
// connections.
func probeLinks(c Config, ns *os.File) (conntrack bool, err error) {
	l, err := newLinks(ns)
	if err != nil {
		return false, err
	}
	defer l.close()
	return l.probe(c)
}

// probe creates a bridge and a port of it. The error names the missing module.
func (l *links) probe(c Config) (conntrack bool, err error) {
	subnet := netip.PrefixFrom(ranges[0].Addr(), subnetBits)
	index, err := l.ensureBridge(bridgeSpec{name: c.Name, mtu: defaultMTU, subnet: subnet})
	if err != nil {
		return false, fmt.Errorf("the kernel has no bridges (module bridge): %w", err)
	}
	name, mac := vethName(c.VethPrefix, "probe"), macOf(gateway(subnet).Next())
	if err := l.addVeth(name, index, defaultMTU, l.ns, mac); err != nil {
		return false, fmt.Errorf("the kernel has no virtual Ethernet (module veth): %w", err)
	}
	if err := l.setPort(name, mac); err != nil {
		return false, fmt.Errorf("the kernel cannot set up ports of bridges: %w", err)
	}
	// Listing connections is optional: an error means that the kernel lacks the feature.
	_, _, err = l.flows(unix.AF_INET, func(flow) bool { return false })
	return err == nil, nil
}

// probeTable creates the table in steps, each a transaction of its own, so that the
// error names the missing feature. It returns the flags that the kernel accepts for
// a table.
func probeTable(ctx context.Context, t *table, l layout) (flags uint32, err error) {
	name := t.name
	// An owned, persistent table needs Linux 6.9. Older kernels refuse the flag,
	// and an owned table that does not persist would be removed with the agent.
	t.flags = tableOwner | tablePersist
	b := &batch{}
	b.addTable(unix.NFPROTO_INET, name, t.flags)
	if err := t.commit(ctx, b); err != nil {
		t.flags = 0
		b = &batch{}
		b.addTable(unix.NFPROTO_INET, name, 0)
		if err := t.commit(ctx, b); err != nil {
			return 0, fmt.Errorf("the kernel has no nf_tables (module nf_tables): %w", err)
		}
	}
	b = &batch{}
	for i, m := range l.mappings() {
		b.addMapping(name, uint32(i+1), m)
	}
	if err := t.commit(ctx, b); err != nil {
		return 0, fmt.Errorf("nf_tables of this kernel has no maps with concatenated values (Linux 5.6): %w", err)
	}
	// Added rule by rule, so that the first rule that needs a missing module fails alone.
	for _, c := range l.chains() {
		b = &batch{}
		b.addChain(name, c)
		if err := t.commit(ctx, b); err != nil {
			return 0, fmt.Errorf("nf_tables of this kernel has no chains of type %q at inet tables (Linux 5.2, module nft_chain_nat): %w", c.kind, err)
		}
		for _, r := range c.rules {
			b = &batch{}
			b.addRule(name, c, r)
			if err := t.commit(ctx, b); err != nil {
				return 0, fmt.Errorf("nf_tables of this kernel cannot have the rules of chain %s (modules nft_nat, nft_masq, nft_ct, nft_fib_inet): %w", c.name, err)
			}
		}
	}
	// Finally everything in one transaction, as on the node, with an entry in a map.
	want := contents{}
	pod := plan{IPv4: netip.PrefixFrom(gateway(l.subnet).Next(), l.subnet.Bits())}
	want.add(forward{claim{Proto: unix.IPPROTO_TCP, Port: 1}, 1}.element(pod))
	if err := t.replace(ctx, l, want); err != nil {
		return 0, fmt.Errorf("nf_tables of this kernel: %w", err)
	}
	return t.flags, nil
}

// probeGuard creates the tables with the rules of guard.go.
func probeGuard(ctx context.Context, t *table, l layout) error {
	l.guard = true
	return t.replace(ctx, l, contents{})
}
