package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// flushRuleset is "nft flush ruleset".
func (l *lab) flushRuleset() {
	l.t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(l.node.Fd())))
	if err != nil {
		l.t.Fatal(err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		l.t.Fatal(err)
	}
}

// says sends a line through a connection that is an echo, and fails unless it
// comes back.
func (l *lab) says(c net.Conn, text string) {
	l.t.Helper()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	b := make([]byte, len(text))
	if _, err := c.Write([]byte(text)); err != nil {
		l.t.Fatal(err)
	}
	if n, err := c.Read(b); err != nil || string(b[:n]) != text {
		l.t.Fatalf("%q, %v; want %q", b[:n], err, text)
	}
}

// connect opens a connection to a host port that stays.
func (l *lab) connect(ns *os.File, to string) net.Conn {
	l.t.Helper()
	c, err := l.dial(ns, "tcp", to, testTimeout)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, _, err := answer(c, testTimeout); err != nil {
		l.t.Fatal(err)
	}
	return c
}

const (
	restoreLimit = 100 * time.Millisecond
	// delayedACK is longer than the kernel delays an acknowledgement (TCP_DELACK_MAX, 200 ms).
	delayedACK = 250 * time.Millisecond
)

func TestAFlushedTableIsPutBack(t *testing.T) {
	l := newLab(t)
	p, err := l.make(Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.table.flags = 0 // as before Linux 6.9
	l.recovered(p)
	g := l.attach(p, "web", port("tcp", 8080, 80))
	l.serve(g.ns, "tcp", ":80", "web")
	c := l.connect(l.outside, "192.0.2.1:8080")
	l.run(p)
	for range 5 {
		time.Sleep(delayedACK) // a late one would find no translation
		start := time.Now()
		l.flushRuleset()
		l.eventually(func() bool {
			name, _, err := l.ask(l.outside, "tcp", "192.0.2.1:8080", 20*time.Millisecond)
			return err == nil && name == "web"
		}, "the host port does not come back")
		// The machine may be slow, or emulated; BenchmarkRestore measures it.
		if took := time.Since(start); took > testTimeout/2 {
			t.Errorf("took %v from %s", took, start.Format("05.000"))
		} else if took > restoreLimit {
			t.Logf("took %v", took)
		}
		l.says(c, "still here")
	}
	l.holds(p, 1)
	restores := func() int { return l.logs.FilterMessage("restored table after a change by another program").Len() }
	l.eventually(func() bool { return restores() == 5 }, "not one restore for each loss")
	l.attach(p, "more", port("tcp", 8081, 80))
	time.Sleep(3 * restorePause)
	if n := restores(); n != 5 {
		t.Errorf("%d restores after a change of our own, want 5", n)
	}
}

// Since Linux 6.9 nobody else changes the table while the agent lives, and it stays
// when the agent ends.
func TestAnOwnedTableIsPassedBy(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	if p.table.flags == 0 {
		t.Skip("this kernel has no tables that are owned and persist")
	}
	l.attach(p, "web", port("tcp", 8080, 80))
	l.flushRuleset()
	l.holds(p, 1)
	p.table.close()
	l.holds(p, 1)
	l.attach(p, "more", port("tcp", 8081, 80)) // is the owner again
	l.flushRuleset()
	l.holds(p, 2)
}

// Whoever removes a part of the table has all of it come back.
func TestAPartOfTheTableIsPutBack(t *testing.T) {
	l := newLab(t)
	p, err := l.make(Config{})
	if err != nil {
		t.Fatal(err)
	}
	p.table.flags = 0
	l.recovered(p)
	g := l.attach(p, "web", port("tcp", 8080, 80))
	l.run(p)
	table := &nftables.Table{Name: "nodewright", Family: nftables.TableFamilyINet}
	for name, harm := range map[string]func(c *nftables.Conn){
		"a chain": func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: "input", Table: table}) },
		"a map":   func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Name: setAny4, Table: table}) },
		"a rule":  func(c *nftables.Conn) { c.FlushTable(table) },
		"more": func(c *nftables.Conn) {
			e := forward{claim{Proto: unix.IPPROTO_TCP, Port: 1}, 1}.element(plan{IPv4: netip.PrefixFrom(g.ip, 24)})
			_ = c.SetAddElements(&nftables.Set{Name: setAny4, Table: table, IsMap: true}, []nftables.SetElement{{Key: []byte(e.key), Val: []byte(e.val)}})
		},
	} {
		c, err := nftables.New(nftables.WithNetNSFd(int(l.node.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		harm(c)
		if err := c.Flush(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l.eventually(func() bool {
			ok, err := p.table.holds(p.layout(), p.contents())
			return ok && err == nil
		}, name+" does not come back")
	}
}

func TestABridgeRemovedByHandComesBack(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	a := l.attach(p, "a", port("tcp", 8080, 80))
	b := l.attach(p, "b")
	l.serve(a.ns, "tcp", ":80", "a")
	l.run(p)
	for name, harm := range map[string]func(link netlink.Link) error{
		"removed": netlink.LinkDel,
		"down":    netlink.LinkSetDown,
		"without its address": func(link netlink.Link) error {
			return netlink.AddrDel(link, addrOf(netip.MustParsePrefix("10.214.0.1/24")))
		},
		"without a pod": func(netlink.Link) error {
			veth, err := netlink.LinkByName(vethName("nw", "id-a"))
			return errors.Join(err, netlink.LinkSetNoMaster(veth))
		},
	} {
		l.in(l.node, func() error {
			link, err := netlink.LinkByName("nw0")
			if err != nil {
				return err
			}
			return harm(link)
		})
		l.eventually(func() bool {
			name, _, err := l.ask(b.ns, "tcp", a.ip.String()+":80", 50*time.Millisecond)
			return err == nil && name == "a"
		}, "pods do not reach each other: bridge "+name)
		l.asks(l.outside, "tcp", "192.0.2.1:8080", "a", "")
	}
	// Without Run the next pod brings it back.
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("nw0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	c := l.attach(p, "c")
	l.asks(c.ns, "tcp", a.ip.String()+":80", "a", c.ip.String())
}

func TestARestartLosesNoPacket(t *testing.T) {
	l := newLab(t)
	old := l.plugin(Config{})
	web := l.attach(old, "web", port("tcp", 8080, 80))
	dead := l.attach(old, "dead", port("tcp", 8081, 80)) // its sandbox has to be taken back
	lost := l.attach(old, "lost", port("tcp", 8082, 80)) // nobody has a record of it
	l.serve(web.ns, "tcp", ":80", "web")
	c := l.connect(l.outside, "192.0.2.1:8080")
	old.Close() // with the agent
	l.says(c, "nobody is there")
	stop := make(chan struct{})
	var asking sync.WaitGroup
	var asked atomic.Int32
	asking.Go(func() {
		for ; ; asked.Add(1) {
			select {
			case <-stop:
				return
			default:
			}
			// Without the table the node itself would answer, and refuse.
			if name, _, err := l.ask(l.outside, "tcp", "192.0.2.1:8080", testTimeout); err != nil || name != "web" {
				t.Errorf("a connection was lost: %q, %v", name, err)
				return
			}
		}
	})
	l.eventually(func() bool { return asked.Load() > 0 }, "nothing is asked")
	dead.Result = nil
	p := l.plugin(Config{}, web.Kept, dead.Kept)
	close(stop)
	asking.Wait()
	l.says(c, "another one is there")
	l.holds(p, 1)
	if left := l.left(p); slices.Contains(left, "veth "+vethName("nw", lost.Attachment.ID)) || !slices.Contains(left, "veth "+vethName("nw", web.Attachment.ID)) {
		t.Errorf("left: %v", left)
	}
	if _, err := p.Plan(l.ctx(), l.attachment("taken", port("tcp", 8081, 80))); codeOf(err) != network.AlreadyExists {
		t.Errorf("%v, want the port to be taken until the pod is torn down", err)
	}
	l.detach(p, dead)
	if g := l.attach(p, "next", port("tcp", 8081, 80)); g.ip.String() != "10.214.0.4" {
		t.Errorf("the next address is %v, want the one after the latest", g.ip)
	}
	l.detach(p, web)
	l.asksInVain(l.outside, "tcp", "192.0.2.1:8080")
}

func codeOf(err error) network.Code {
	var e *network.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return network.Unknown
}

func TestWhatIsConfiguredAnewWaitsForTheOldPods(t *testing.T) {
	l := newLab(t)
	old := l.plugin(Config{Subnet: netip.MustParsePrefix("10.99.0.0/24"), Table: "older"})
	web := l.attach(old, "web", port("tcp", 8080, 80))
	l.serve(web.ns, "tcp", ":80", "web")
	old.Close()
	now := Config{Subnet: netip.MustParsePrefix("10.98.0.0/24"), Name: "nw9"}
	p := l.plugin(now, web.Kept)
	l.asks(l.outside, "tcp", "192.0.2.1:8080", "web", "")
	if there, err := p.table.exists("older"); len(there) > 0 || err != nil {
		t.Errorf("the table of before is there: %v", err)
	}
	if advice := p.Advice(); len(advice) == 0 || !strings.Contains(advice[0], "subnets 10.98.0.0/24 take effect") {
		t.Errorf("advice %q", advice)
	}
	if g := l.attach(p, "more"); !netip.MustParsePrefix("10.99.0.0/24").Contains(g.ip) {
		t.Errorf("address %v", g.ip)
	} else {
		l.detach(p, g)
	}
	l.detach(p, web)
	p.Close()
	next := l.plugin(now)
	if g := l.attach(next, "new"); g.ip.String() != "10.98.0.2" {
		t.Errorf("address %v", g.ip)
	}
}

func TestForwardingOfOthersStaysDropped(t *testing.T) {
	for _, before := range []string{"0", "1"} {
		t.Run("ip_forward "+before, func(t *testing.T) {
			l := newLab(t)
			far := l.namespace("far")
			farAddr := netip.MustParsePrefix("198.51.100.2/24")
			l.cable(l.node, "up1", netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:1::1/64"), far, "eth0", farAddr, netip.MustParsePrefix("2001:db8:1::2/64"))
			l.in(far, func() error {
				return errors.Join(defaultRoute("eth0", netip.MustParseAddr("198.51.100.1")), defaultRoute("eth0", netip.MustParseAddr("2001:db8:1::1")))
			})
			l.in(l.outside, func() error {
				return errors.Join(defaultRoute("eth0", nodeAddr.Addr()), defaultRoute("eth0", nodeAddr6.Addr()))
			})
			l.in(l.node, func() error {
				return errors.Join(writeSysctl("ipv4/ip_forward", before), writeSysctl("ipv6/conf/all/forwarding", before), writeSysctl("ipv6/conf/up1/accept_ra", "1"))
			})
			l.serve(far, "tcp", ":80", "far")
			cfg := Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")}
			p := l.plugin(cfg)
			g := l.attach(p, "a", port("tcp", 8080, 80))
			l.serve(g.ns, "tcp", ":80", "a")
			check := func(p *Plugin) {
				t.Helper()
				l.asks(g.ns, "tcp", "198.51.100.2:80", "far", "198.51.100.1")
				l.asks(far, "tcp", "198.51.100.1:8080", "a", "")
				for _, to := range []string{"198.51.100.2:80", "[2001:db8:1::2]:80"} {
					if before == "0" {
						l.asksInVain(l.outside, "tcp", to)
					} else {
						l.asks(l.outside, "tcp", to, "far", "")
					}
				}
				said := strings.Contains(strings.Join(p.Advice(), "\n"), "net.ipv4.ip_forward")
				if said != (before == "0") {
					t.Errorf("advice %q", p.Advice())
				}
			}
			check(p)
			for _, lost := range []bool{false, true} {
				p.Close()
				if lost { // the record of who turned it on
					if err := os.RemoveAll(p.cfg.StateDir); err != nil {
						t.Fatal(err)
					}
				}
				p = l.plugin(cfg, g.Kept) // forwarding is 1 by now, by us
				check(p)
			}
			if err := p.Reset(l.ctx()); err != nil {
				t.Fatal(err)
			}
			if left := l.left(p); !slices.Equal(left, []string{"veth up1"}) {
				t.Errorf("left: %v", left)
			}
			l.in(l.node, func() error {
				v4, err4 := readSysctl("ipv4/ip_forward")
				v6, err6 := readSysctl("ipv6/conf/all/forwarding")
				ra, err := readSysctl("ipv6/conf/up1/accept_ra")
				if v4 != before || v6 != before || ra != "1" && before == "1" {
					t.Errorf("forwarding %s and %s, accept_ra %s after Reset", v4, v6, ra)
				}
				return errors.Join(err4, err6, err)
			})
			if _, err := os.Stat(filepath.Join(p.cfg.StateDir, stateFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state stays: %v", err)
			}
			l.detach(p, g)
			l.attach(p, "again")
		})
	}
}

func TestNothingIsMadeBeforeTheFirstPod(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	if left := l.left(p); len(left) != 0 {
		t.Errorf("the node has %v", left)
	}
	if _, err := os.Stat(p.cfg.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a state: %v", err)
	}
}

func TestAForeignFirewallIsToldOf(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "a")
	l.serve(l.outside, "tcp", ":82", "outside")
	l.run(p)
	nft := func(f func(c *nftables.Conn)) {
		t.Helper()
		c, err := nftables.New(nftables.WithNetNSFd(int(l.node.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		f(c)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	table := &nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4}
	drop := nftables.ChainPolicyDrop
	nft(func(c *nftables.Conn) {
		c.AddTable(table)
		c.AddChain(&nftables.Chain{Name: "FORWARD", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
		c.AddChain(&nftables.Chain{Name: "DOCKER-USER", Table: table})
	})
	const want = `nft insert rule ip filter DOCKER-USER iifname "nw0" accept; nft insert rule ip filter DOCKER-USER oifname "nw0" accept`
	l.eventually(func() bool { return strings.Contains(strings.Join(p.Advice(), "\n"), want) }, "nothing is said of the chain that drops")
	l.asksInVain(g.ns, "tcp", "192.0.2.2:82")
	if err := p.Status(); err != nil {
		t.Errorf("status %v, want ready", err)
	}
	if n := l.logs.FilterMessage("packets of pods are dropped by others").Len(); n != 1 {
		t.Errorf("said %d times", n)
	}
	nft(func(c *nftables.Conn) {
		for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
			c.AddRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "FORWARD", Table: table},
				Exprs: rule(ifname(key, expr.CmpOpEq, "nw0"), []expr.Any{&expr.Counter{}}, verdict(expr.VerdictAccept, ""))})
		}
	})
	l.asks(g.ns, "tcp", "192.0.2.2:82", "outside", "")
	if err := p.lookForDropping(); err != nil || strings.Contains(strings.Join(p.Advice(), "\n"), "DOCKER") {
		t.Errorf("advice %q, %v after it was taken", p.Advice(), err)
	}
}

func TestARouteOverTheSubnetIsToldOf(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "a")
	l.run(p)
	vpn := func(to string) *netlink.Route {
		dst := netip.MustParsePrefix(to)
		return &netlink.Route{Dst: &net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), 32)}, Gw: outsideAddr.Addr().AsSlice(), Table: 51820}
	}
	l.in(l.node, func() error { return netlink.RouteAdd(vpn("10.208.0.0/12")) })
	const said = "the subnet 10.214.0.0/24 of pods overlaps route 10.208.0.0/12 dev up0 table 51820"
	l.eventually(func() bool { return strings.Contains(strings.Join(p.Advice(), "\n"), said) }, "nothing is said of the route")
	if err := p.Status(); err != nil {
		t.Errorf("status %v, want ready", err)
	}
	if b := l.attach(p, "b"); b.ip.String() != "10.214.0.3" {
		t.Errorf("address %v", b.ip)
	}
	leave, err := p.enter(l.ctx())
	if err != nil {
		t.Fatal(err)
	}
	p.table.close() // with the agent
	leave()
	// An agent that restarts keeps the subnet that its pods have.
	if again := l.plugin(Config{}, g.Kept); again.subnet != p.subnet {
		t.Errorf("subnet %v", again.subnet)
	}
	l.in(l.node, func() error { return netlink.RouteDel(vpn("10.208.0.0/12")) })
	l.eventually(func() bool { return !strings.Contains(strings.Join(p.Advice(), "\n"), "overlaps") }, "the route is still said to be there")
}

func TestASubnetIsChosenBesideTheRoutes(t *testing.T) {
	l := newLab(t)
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return addresses2(link.Attrs().Name, netip.MustParsePrefix("10.214.0.9/23"))
	})
	resolv := filepath.Join(l.dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("search x\nnameserver 10.214.2.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := l.plugin(Config{ResolvConf: []string{resolv, filepath.Join(l.dir, "missing")}})
	g := l.attach(p, "a")
	if g.ip.String() != "10.214.3.2" {
		t.Errorf("address %v", g.ip)
	}
	l.detach(p, g)
	p.Close()
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("nw0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	if p, err := l.make(Config{}); err != nil || p.subnet.String() != "10.214.3.0/24" { // without the name server
		t.Errorf("subnet %v, %v; want the one that was recorded", p.subnet, err)
	}
}

// A VPN came while the agent ran; it has to start again all the same, with or
// without what it had recorded.
func TestARestartKeepsTheSubnetOfTheBridge(t *testing.T) {
	for _, given := range []string{"", "10.214.0.0/24"} {
		l := newLab(t)
		var cfg Config
		if given != "" {
			cfg.Subnet = netip.MustParsePrefix(given)
		}
		p := l.plugin(cfg)
		l.attach(p, "a")
		p.Close()
		l.in(l.node, func() error {
			return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IP{10, 208, 0, 0}, Mask: net.CIDRMask(12, 32)}, Gw: outsideAddr.Addr().AsSlice()})
		})
		if err := os.RemoveAll(p.cfg.StateDir); err != nil {
			t.Fatal(err)
		}
		if p := l.plugin(cfg); p.subnet.String() != "10.214.0.0/24" {
			t.Errorf("subnet %v", p.subnet)
		}
	}
}

func TestAMachineOfflineHasPods(t *testing.T) {
	l := newLab(t)
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("up0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	p := l.plugin(Config{})
	a, b := l.attach(p, "a", port("tcp", 8080, 80)), l.attach(p, "b")
	l.serve(a.ns, "tcp", ":80", "a")
	l.asks(b.ns, "tcp", a.ip.String()+":80", "a", b.ip.String())
	l.asks(l.node, "tcp", "127.0.0.1:8080", "a", "")
	if p.mtu != 1500 {
		t.Errorf("MTU %d", p.mtu)
	}
}

func TestTheMTUIsThatOfTheDefaultRoute(t *testing.T) {
	l := newLab(t)
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("up0")
		return errors.Join(err, netlink.LinkSetMTU(link, 1380))
	})
	p := l.plugin(Config{})
	g := l.attach(p, "a")
	l.in(g.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if mtu := link.Attrs().MTU; mtu != 1380 {
			t.Errorf("MTU %d", mtu)
		}
		return err
	})
}

func TestNewRefusesWithAllReasons(t *testing.T) {
	l := newLab(t)
	l.in(l.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "nw0"
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}), up("nw0"))
	})
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"foreign bridge and route", Config{Subnet: netip.MustParsePrefix("192.0.2.128/25")}, []string{
			"Config.Name nw0: the node has a bridge of that name that was not made by this agent",
			"Config.Subnet 192.0.2.128/25 overlaps route 192.0.2.0/24 dev up0"}},
		{"foreign interface", Config{Name: "up0"}, []string{"has a veth of that name"}},
		{"names and sizes", Config{Name: "a/b", Table: "x y", VethPrefix: "toolong", MTU: 100, Subnet: netip.MustParsePrefix("10.0.0.0/30"), Subnet6: netip.MustParsePrefix("fd00::/120")}, []string{
			`Config.Name "a/b": want`, `Config.Table "x y": want`, `Config.VethPrefix "toolong": want`, "Config.MTU 100: want 1280 to 65535", "Config.Subnet 10.0.0.0/30: want a prefix length of 8 to 29 bits", ""}},
		{"subnets of another setting", Config{Subnet: netip.MustParsePrefix("192.0.2.128/25"), SubnetsOf: "podCIDR"}, []string{"podCIDR 192.0.2.128/25 overlaps route"}},
		{"sizes of another setting", Config{Subnet: netip.MustParsePrefix("10.0.0.0/30"), Subnet6: netip.MustParsePrefix("fd00::/127"), SubnetsOf: "podCIDR"}, []string{
			"podCIDR 10.0.0.0/30: want a prefix", "podCIDR fd00::/127: want a prefix"}},
		{"IPv6 prefix", Config{Subnet6: netip.MustParsePrefix("fd00::/110")}, []string{"Config.Subnet6 fd00::/110: want a prefix length of 16 to 104 bits"}},
	} {
		p, err := l.make(c.cfg)
		if err == nil {
			p.Close()
			t.Errorf("%s: taken", c.name)
			continue
		}
		if codeOf(err) != network.FailedPrecondition {
			t.Errorf("%s: code of %v", c.name, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nlacks %q", c.name, err, w)
			}
		}
	}
	if left := l.left(&Plugin{cfg: Config{Table: "nodewright"}, table: &table{ns: int(l.node.Fd())}}); !slices.Equal(left, []string{"bridge nw0"}) {
		t.Errorf("left: %v", left)
	}
}

func TestNewRefusesWithoutPrivileges(t *testing.T) {
	needKernel(t)
	dir := t.TempDir()
	err := onThread(func() error {
		runtime.LockOSThread() // for good: the thread ends with its goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		return unix.Capset(&header, &data[0])
	}, func() error {
		_, err := New(Config{StateDir: dir})
		return err
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "lacks CAP_NET_ADMIN") {
		t.Errorf("%v", err)
	}
}

// The kernel may have done what it could not say.
func TestAnAnswerThatIsLostIsLookedUp(t *testing.T) {
	for name, fault := range map[string]func(p *Plugin) func(error) error{
		"done": func(*Plugin) func(error) error { return func(error) error { return unix.ENOBUFS } },
		"once": func(p *Plugin) func(error) error {
			return func(error) error { p.table.fault = nil; return unix.ENOBUFS }
		},
		"timeout": func(p *Plugin) func(error) error {
			return func(error) error { p.table.fault = nil; return os.ErrDeadlineExceeded }
		},
		"not done": func(p *Plugin) func(error) error {
			return func(error) error {
				p.table.fault = nil
				p.table.close()
				b := &batch{}
				b.delTable(unix.NFPROTO_INET, p.cfg.Table)
				if err := p.table.commit(context.Background(), b); err != nil {
					t.Error(err)
				}
				return unix.ENOBUFS
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			p := l.plugin(Config{})
			l.attach(p, "first", port("tcp", 8079, 80))
			p.table.fault = fault(p)
			g := l.attach(p, "web", port("tcp", 8080, 80))
			l.serve(g.ns, "tcp", ":80", "web")
			l.asks(l.outside, "tcp", "192.0.2.1:8080", "web", "")
			l.holds(p, 2)
			p.table.fault = fault(p)
			l.detach(p, g)
			p.table.fault = nil
			l.holds(p, 1)
		})
	}
}

func TestAHostPortIsOnePods(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	l.attach(p, "web", port("tcp", 8080, 80))
	_, err := l.tryAttach(p, l.attachment("late", port("tcp", 8080, 81)))
	if codeOf(err) != network.AlreadyExists || !strings.Contains(err.Error(), "host port tcp 8080 on every address of the node is taken by pod default/web (id-web)") {
		t.Errorf("%v", err)
	}
	l.attach(p, "udp", port("udp", 8080, 80), network.Port{Protocol: "tcp", HostIP: nodeAddr.Addr(), HostPort: 8080, ContainerPort: 1})
	l.holds(p, 3)
}

// Pods that were made with IPv6 go on beside later ones without.
func TestPodsOfBothKinds(t *testing.T) {
	l := newLab(t)
	with := Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")}
	p := l.plugin(with)
	a := l.attach(p, "a", port("tcp", 8080, 80))
	l.serve(a.ns, "tcp", ":80", "a")
	p.Close()
	p = l.plugin(Config{}, a.Kept)
	l.asks(l.outside, "tcp", "[2001:db8::1]:8080", "a", "")
	p.subnet6 = netip.Prefix{}
	b := l.attach(p, "b", port("tcp", 8081, 80))
	p.Close()
	p = l.plugin(Config{}, a.Kept, b.Kept)
	l.asks(l.outside, "tcp", "[2001:db8::1]:8080", "a", "")
	p.Close()
	p = l.plugin(with, b.Kept)
	c := l.attach(p, "c", port("tcp", 8082, 80))
	l.serve(c.ns, "tcp", ":80", "c")
	l.asks(l.outside, "tcp", "[2001:db8::1]:8082", "c", "")
	l.detach(p, c)
	l.detach(p, b)
}

// What is in the way is said, and as soon as it is gone pods are attached.
func TestAForeignBridgeIsInTheWay(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var told atomic.Int32
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx, func() { told.Add(1) }) })
	defer running.Wait()
	defer cancel()
	l.in(l.node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "nw0"
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}), up("nw0"))
	})
	if _, err := l.tryAttach(p, l.attachment("a")); err == nil || !strings.Contains(err.Error(), "bridge nw0: a device with this name exists and was not created by this agent") {
		t.Errorf("%v", err)
	}
	if p.Status() == nil {
		t.Error("the status says nothing")
	}
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("nw0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	l.eventually(func() bool { return p.Status() == nil && told.Load() > 0 }, "the status stays")
	l.attach(p, "b")
}

func TestCheckFindsWhatIsAmiss(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	p.table.flags = 0
	g := l.attach(p, "a", port("tcp", 8080, 80))
	check := func(want string) {
		t.Helper()
		err := p.Check(l.ctx(), g.Kept, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	check("")
	if err := p.table.remove(l.ctx(), "nodewright"); err != nil {
		t.Fatal(err)
	}
	check("table inet nodewright has missing or additional rules")
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("nw0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	check("is not a port of bridge nw0")
	l.in(g.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	check("is missing")
}

// Somebody runs sysctl: the plugin fights nobody, and says what follows.
func TestForwardingThatWasTurnedOffIsToldOf(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	l.attach(p, "a")
	l.run(p)
	const said = "net.ipv4.ip_forward is 0"
	l.in(l.node, func() error { return writeSysctl("ipv4/ip_forward", "0") })
	l.eventually(func() bool { return strings.Contains(strings.Join(p.Advice(), "\n"), said) }, "nothing is said of forwarding")
	l.in(l.node, func() error { return writeSysctl("ipv4/ip_forward", "1") })
	l.eventually(func() bool { return !strings.Contains(strings.Join(p.Advice(), "\n"), said) }, "forwarding is still said to be off")
}

// A pod of a user namespace of its own.
func TestAPodWithAUserNamespace(t *testing.T) {
	l := newLab(t)
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}}, GidMappings: []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}},
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no user namespaces here:", err)
	}
	path := l.path("userns")
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = unix.Mount("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/ns/net", path, "", unix.MS_BIND, "")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	p := l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
	a := l.attachment("userns", port("tcp", 8080, 80))
	saved, err := p.Plan(l.ctx(), a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SetUp(l.ctx(), a, path, saved, nil); err != nil {
		t.Fatal(err)
	}
	ns, err := openNetns(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	l.in(ns, func() error { return up("lo") })
	l.serve(ns, "tcp", ":80", "web")
	l.asks(l.outside, "tcp", "192.0.2.1:8080", "web", "")
}

// What is not a pod's namespace is left alone.
func TestOnlyAPodsNamespaceIsSetUp(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	pipe, file, link := l.path("pipe"), l.path("file"), l.path("link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(file, nil, 0o600), os.Symlink(l.path("outside"), link)); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{l.path("node"), pipe, file, link, "/proc/self/ns/mnt", l.path("missing")} {
		a := l.attachment(fmt.Sprint("x", i))
		saved, err := p.Plan(l.ctx(), a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.SetUp(l.ctx(), a, path, saved, nil); err == nil {
			t.Errorf("%s: set up", path)
		}
		if err := p.TearDown(l.ctx(), a, "", saved, nil); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := p.addrs.inUse(); n != 0 {
		t.Errorf("%d addresses are in use", n)
	}
}

// A namespace that is gone takes the interface with it; the rest is taken back.
func TestTearDownWithoutANamespace(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "a", port("tcp", 8080, 80))
	l.in(g.ns, func() error {
		link, err := netlink.LinkByName("eth0")
		return errors.Join(err, netlink.LinkDel(link))
	})
	g.Netns = ""
	l.detach(p, g)
	l.holds(p, 0)
	// Nor does it need a plan that is whole.
	g = l.attach(p, "b", port("tcp", 8080, 80))
	g.Saved = []byte(`{"v":1,"veth":"up0"}`)
	l.detach(p, g)
	l.holds(p, 0)
	if left := l.left(p); !slices.Equal(left, []string{"bridge nw0", "table"}) {
		t.Errorf("left: %v", left)
	}
}

// A caller that gives up has nothing half-done stay: TearDown waits for the call.
func TestACallThatWasGivenUp(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	l.attach(p, "first")
	l.namespace("late")
	a := l.attachment("late", port("tcp", 8080, 80))
	saved, err := p.Plan(l.ctx(), a)
	if err != nil {
		t.Fatal(err)
	}
	advice := p.Advice()
	leave, err := p.enter(l.ctx()) // somebody hangs in the kernel
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.SetUp(short, a, l.path("late"), saved, nil); codeOf(err) != network.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if err := p.TearDown(short, a, l.path("late"), saved, nil); codeOf(err) != network.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	if p.Status() != nil || !slices.Equal(p.Advice(), advice) { // which would wait for ever
		t.Errorf("status %v, advice %q, want %q", p.Status(), p.Advice(), advice)
	}
	leave()
	if err := p.TearDown(l.ctx(), a, l.path("late"), saved, nil); err != nil {
		t.Fatal(err)
	}
	l.holds(p, 0)
	if left := l.left(p); slices.Contains(left, "veth "+vethName("nw", a.ID)) {
		t.Errorf("left: %v", left)
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	l.run(p)
	pods, rounds := 20, 3
	if testing.Short() { // also in the emulated machine
		pods, rounds = 6, 1
	}
	paths := make([]string, pods)
	for i := range pods {
		l.namespace(fmt.Sprint("m", i))
		paths[i] = l.path(fmt.Sprint("m", i))
	}
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			a := l.attachment(fmt.Sprint("m", i), port("tcp", uint16(9000+i), 80), port("udp", uint16(9000+i), 80))
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			for range rounds {
				saved, err := p.Plan(ctx, a)
				if err == nil {
					_, err = p.SetUp(ctx, a, paths[i], saved, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := p.TearDown(ctx, a, paths[i], saved, nil); err != nil {
					t.Error(err)
				}
			}
			saved, err := p.Plan(ctx, a)
			if err == nil {
				_, err = p.SetUp(ctx, a, paths[i], saved, nil)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.holds(p, 2*pods)
}
