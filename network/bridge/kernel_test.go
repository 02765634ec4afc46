package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// Whatever of nf_tables a kernel lacks is named, with the module or the version
// that has it.
func TestAKernelThatLacksNfTablesIsRefused(t *testing.T) {
	needKernel(t)
	// The transactions of a probe, in order, and what is said if they are refused:
	// the table, with an owner and without one, the maps, the chains and rules.
	for _, c := range []struct {
		from int // the first transaction that fails
		err  error
		want string
	}{
		{1, unix.EPROTONOSUPPORT, "the kernel has no nf_tables (module nf_tables): protocol not supported"},
		{1, unix.EOPNOTSUPP, "the kernel has no nf_tables (module nf_tables)"},
		{2, unix.EINVAL, "nf_tables of this kernel has no maps with concatenated values (Linux 5.6)"},
		{3, unix.ENOENT, `nf_tables of this kernel has no chains of type "" at inet tables`},
		{4, unix.ENOENT, "nf_tables of this kernel cannot have the rules of chain hostports (modules nft_nat"},
		{6, unix.EOPNOTSUPP, "nf_tables of this kernel"},
	} {
		t.Run(fmt.Sprint(c.from, c.err), func(t *testing.T) {
			if err := inFreshNetns(func() error {
				ns, err := ownNetns()
				if err != nil {
					return err
				}
				defer ns.Close()
				tab := &table{ns: int(ns.Fd()), name: "nodewright"}
				defer tab.close()
				n := 0
				tab.fault = func(err error) error {
					if n == 0 && err != nil {
						return err // before Linux 6.9 a table with an owner is refused
					}
					if n++; n >= c.from {
						return c.err
					}
					return err
				}
				_, err = probeTable(t.Context(), tab, layout{bridge: "nw0", subnet: netip.MustParsePrefix("10.214.0.0/24")})
				if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.err) {
					t.Errorf("error %v; want %q", err, c.want)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAKernelThatLacksLinksIsRefused(t *testing.T) {
	needKernel(t)
	for kind, want := range map[string]string{
		"bridge": "the kernel has no bridges (module bridge)",
		"veth":   "the kernel has no virtual Ethernet (module veth)",
	} {
		if err := inFreshNetns(func() error {
			ns, err := ownNetns()
			if err != nil {
				return err
			}
			defer ns.Close()
			l, err := newLinks(ns)
			if err != nil {
				return err
			}
			defer l.close()
			l.fault = func(k string) error {
				if k == kind {
					return unix.EOPNOTSUPP
				}
				return nil
			}
			if _, err := l.probe(Config{}.withDefaults()); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("%s: error %v; want %q", kind, err, want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A kernel that cannot do any more what it could when the plugin was made, as
// when a module is gone: Status says so, pods are refused with the reason, what
// they had is given back, and all is well when the module comes back.
func TestAKernelThatLosesAModule(t *testing.T) {
	nowhere, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nowhere.Close()
	for name, c := range map[string]struct {
		lose func(p *Plugin, err error)
		want string
	}{
		"nf_tables": {func(p *Plugin, err error) {
			p.table.close()
			p.table.ns = int(p.ns.Fd())
			if err != nil {
				p.table.ns = int(nowhere.Fd()) // no socket can be had of it
			}
		}, "table inet nodewright: "},
		"bridge": {func(p *Plugin, err error) {
			p.links.fault = func(kind string) error {
				if kind == "bridge" {
					return err
				}
				return nil
			}
		}, "add bridge nw0: operation not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			p := l.plugin(Config{})
			c.lose(p, unix.EOPNOTSUPP)
			_, err := l.tryAttach(p, l.attachment("a", port("tcp", 8080, 80)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %q", err, c.want)
			}
			if err := p.Status(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("status %v; want %q", err, c.want)
			}
			if n := p.addrs.inUse(); n != 0 {
				t.Errorf("%d addresses in use", n)
			}
			c.lose(p, nil)
			l.run(p)
			l.eventually(func() bool { return p.Status() == nil }, "the status stays")
			l.attach(p, "b", port("tcp", 8080, 80))
			l.holds(p, 1)
		})
	}
	t.Run("veth", func(t *testing.T) { // which no other pod has to suffer from
		l := newLab(t)
		p := l.plugin(Config{})
		p.links.fault = func(kind string) error {
			if kind == "veth" {
				return unix.EOPNOTSUPP
			}
			return nil
		}
		if _, err := l.tryAttach(p, l.attachment("a")); codeOf(err) != network.Unknown || !strings.Contains(err.Error(), "add interface nw") {
			t.Errorf("error %v", err)
		}
		p.links.fault = nil
		l.attach(p, "b")
	})
}

// Without IPv6 in the kernel there are pods with IPv4, and who asked for IPv6 is
// told at once. It is the kernel itself that has none where a machine is booted
// with ipv6.disable=1, as make test-vm does with ARGS='-append ipv6.disable=1'.
func TestAKernelWithoutIPv6(t *testing.T) {
	was := signOfIPv6
	t.Cleanup(func() { signOfIPv6 = was })
	needKernelFor(t, Config{})
	l := newLabWith(t, netip.Prefix{}, netip.Prefix{})
	signOfIPv6 = "ipv6/conf/none"
	_, err := l.make(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
	if codeOf(err) != network.FailedPrecondition || !strings.Contains(err.Error(), "Config.Subnet6 fd00:214::/64: the kernel has no IPv6") {
		t.Errorf("error %v", err)
	}
	p := l.plugin(Config{})
	g := l.attach(p, "web", port("tcp", 8080, 80), network.Port{Protocol: "tcp", HostIP: netip.IPv6Unspecified(), HostPort: 8081, ContainerPort: 80})
	if len(g.Result.IPs) != 1 || len(g.Result.Warnings) != 1 {
		t.Errorf("%+v", g.Result)
	}
	l.serve(g.ns, "tcp", ":80", "web")
	l.asks(l.outside, "tcp", "192.0.2.1:8080", "web", "")
	l.run(p)
	if err := p.Status(); err != nil {
		t.Error(err)
	}
	l.detach(p, g)
}
