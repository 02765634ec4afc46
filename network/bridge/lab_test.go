package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

const testTimeout = 2 * time.Minute // for what has to come

var (
	nodeAddr    = netip.MustParsePrefix("192.0.2.1/24")
	outsideAddr = netip.MustParsePrefix("192.0.2.2/24")
	nodeAddr6   = netip.MustParsePrefix("2001:db8::1/64")
	outAddr6    = netip.MustParsePrefix("2001:db8::2/64")
)

// lab is a node and a machine outside, each a network namespace.
type lab struct {
	t       testing.TB
	dir     string
	node    *os.File
	outside *os.File
	logs    *observer.ObservedLogs
	log     *zap.Logger
}

// needKernel skips where the tests cannot be run at all, and fails there if all of
// them are asked for.
func needKernel(t testing.TB) {
	t.Helper()
	needKernelFor(t, Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
}

func needKernelFor(t testing.TB, cfg Config) {
	t.Helper()
	miss := t.Skip
	if os.Getenv("CI") == "true" {
		miss = t.Fatal
	}
	if os.Geteuid() != 0 {
		miss("needs root")
	}
	if _, err := probe(cfg.withDefaults()); err != nil {
		miss("needs a kernel with nf_tables, bridges and, mostly, IPv6: ", err)
	}
}

func newLab(t testing.TB) *lab {
	t.Helper()
	needKernel(t)
	return newLabWith(t, nodeAddr6, outAddr6)
}

// newLabWith makes a lab that has the addresses of IPv6, or none of it.
func newLabWith(t testing.TB, node6, out6 netip.Prefix) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir()}
	core, logs := observer.New(zap.DebugLevel)
	l.log, l.logs = zap.New(core), logs
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range logs.All() {
				t.Logf("%s %s %v", e.Time.Format("05.000"), e.Message, e.ContextMap())
			}
		}
	})
	l.node, l.outside = l.namespace("node"), l.namespace("outside")
	l.cable(l.node, "up0", nodeAddr, node6, l.outside, "eth0", outsideAddr, out6)
	l.in(l.node, func() error {
		if out6.IsValid() {
			return errors.Join(defaultRoute("up0", outsideAddr.Addr()), defaultRoute("up0", out6.Addr()))
		}
		return defaultRoute("up0", outsideAddr.Addr())
	})
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, "netns-"+name) }

// namespace makes a network namespace that is mounted at a path.
func (l *lab) namespace(name string) *os.File {
	l.t.Helper()
	path := l.path(name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	err := inFreshNetns(func() error {
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		return up("lo")
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	ns, err := openNetns(path, true)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func (l *lab) remove(name string) {
	l.t.Helper()
	if err := errors.Join(unix.Unmount(l.path(name), unix.MNT_DETACH), os.Remove(l.path(name))); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) in(ns *os.File, f func() error) {
	l.t.Helper()
	if err := withinNetns(ns, f); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) cable(a *os.File, nameA string, addrA, addrA6 netip.Prefix, b *os.File, nameB string, addrB, addrB6 netip.Prefix) {
	l.t.Helper()
	l.in(a, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = nameA
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b.Fd())})
	})
	l.in(a, func() error { return errors.Join(up(nameA), addresses2(nameA, addrA, addrA6)) })
	l.in(b, func() error { return errors.Join(up(nameB), addresses2(nameB, addrB, addrB6)) })
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func addresses2(name string, all ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	for _, p := range all {
		if p.IsValid() {
			err = errors.Join(err, netlink.AddrAdd(link, addrOf(p)))
		}
	}
	return err
}

func defaultRoute(name string, gw netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice(), Dst: everywhere(gw)})
}

// make makes a plugin for the node.
func (l *lab) make(cfg Config) (p *Plugin, err error) {
	l.t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = filepath.Join(l.dir, "state")
	}
	if cfg.ResolvConf == nil {
		cfg.ResolvConf = []string{}
	}
	cfg.Log = l.log
	if e := withinNetns(l.node, func() error { p, err = New(cfg); return nil }); e != nil {
		l.t.Fatal(e)
	}
	if err == nil {
		l.t.Cleanup(p.Close)
	}
	return p, err
}

func (l *lab) plugin(cfg Config, kept ...network.Kept) *Plugin {
	l.t.Helper()
	p, err := l.make(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.recovered(p, kept...)
	return p
}

func (l *lab) recovered(p *Plugin, kept ...network.Kept) {
	l.t.Helper()
	if err := errors.Join(p.Recovered(l.ctx(), kept), p.Status()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	l.t.Cleanup(cancel)
	return ctx
}

// run runs the plugin until the test's end.
func (l *lab) run(p *Plugin) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, func() {}) }()
	l.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				l.t.Error(err)
			}
		case <-time.After(testTimeout):
			l.t.Error("Run does not end")
		}
	})
	// It listens from the first look on.
	l.eventually(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.looked
	}, "Run looks at nothing")
}

func (l *lab) eventually(f func() bool, message string) {
	l.t.Helper()
	for end := time.Now().Add(testTimeout); !f(); {
		if time.Now().After(end) {
			l.t.Fatal(message)
		}
		time.Sleep(time.Millisecond)
	}
}

// guest is a pod that is attached.
type guest struct {
	network.Kept
	ns *os.File
	ip netip.Addr
}

func (g guest) ip6() netip.Addr { return g.Result.IPs[1] }

func (l *lab) attachment(name string, ports ...network.Port) network.Attachment {
	return network.Attachment{ID: "id-" + name, Namespace: "default", Name: name, UID: "uid-" + name, Ports: ports}
}

func (l *lab) attach(p *Plugin, name string, ports ...network.Port) guest {
	l.t.Helper()
	g, err := l.tryAttach(p, l.attachment(name, ports...))
	if err != nil {
		l.t.Fatal(err)
	}
	return g
}

func (l *lab) tryAttach(p *Plugin, a network.Attachment) (guest, error) {
	l.t.Helper()
	ns := l.namespace(a.Name)
	saved, err := p.Plan(l.ctx(), a)
	if err != nil {
		return guest{}, err
	}
	r, err := p.SetUp(l.ctx(), a, l.path(a.Name), saved, nil)
	if err != nil {
		return guest{}, errors.Join(err, p.TearDown(l.ctx(), a, l.path(a.Name), saved, nil))
	}
	return guest{network.Kept{Attachment: a, Netns: l.path(a.Name), Saved: saved, Result: &r}, ns, r.IPs[0]}, nil
}

func (l *lab) detach(p *Plugin, g guest) {
	l.t.Helper()
	if err := p.TearDown(l.ctx(), g.Attachment, g.Netns, g.Saved, nil); err != nil {
		l.t.Fatal(err)
	}
}

// serve answers in a namespace: to each connection or packet it says its name and
// from whom it came. It returns how often somebody came.
func (l *lab) serve(ns *os.File, network, addr, name string) *atomic.Int64 {
	l.t.Helper()
	var came atomic.Int64
	l.in(ns, func() error {
		if strings.HasPrefix(network, "udp") {
			c, err := net.ListenPacket(network, addr)
			if err != nil {
				return err
			}
			l.t.Cleanup(func() { _ = c.Close() })
			go func() {
				b := make([]byte, 1500)
				for {
					_, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					came.Add(1)
					_, _ = c.WriteTo([]byte(name+" "+from.String()+"\n"), from)
				}
			}()
			return nil
		}
		s, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { _ = s.Close() })
		go func() {
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				go func() {
					defer func() { _ = c.Close() }()
					_, _ = fmt.Fprintf(c, "%s %s\n", name, c.RemoteAddr())
					_, _ = io.Copy(c, c) // and then it is an echo
				}()
			}
		}()
		return nil
	})
	return &came
}

// dial connects from a namespace.
func (l *lab) dial(ns *os.File, network, to string, wait time.Duration) (c net.Conn, err error) {
	l.t.Helper()
	l.in(ns, func() error {
		c, err = net.DialTimeout(network, to, wait)
		return nil
	})
	if err == nil {
		l.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// ask returns what a server says to somebody in a namespace: its name and whom it
// sees.
func (l *lab) ask(ns *os.File, network, to string, wait time.Duration) (name, from string, err error) {
	l.t.Helper()
	c, err := l.dial(ns, network, to, wait)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = c.Close() }()
	if strings.HasPrefix(network, "udp") {
		if _, err := c.Write([]byte("hello")); err != nil {
			return "", "", err
		}
	}
	return answer(c, wait)
}

func answer(c net.Conn, wait time.Duration) (name, from string, err error) {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 1500)
	n, err := c.Read(b)
	if err != nil {
		return "", "", err
	}
	name, from, _ = strings.Cut(strings.TrimSpace(string(b[:n])), " ")
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	return name, from, nil
}

func (l *lab) asks(ns *os.File, network, to, want, from string) {
	l.t.Helper()
	name, seen, err := l.ask(ns, network, to, testTimeout)
	if err != nil || name != want || from != "" && seen != from {
		l.t.Errorf("%s %s: answered by %q, which sees %q, %v; want %q, which sees %q", network, to, name, seen, err, want, from)
	}
}

const refusal = 300 * time.Millisecond // for what must not come

func (l *lab) asksInVain(ns *os.File, network, to string) {
	l.t.Helper()
	if name, _, err := l.ask(ns, network, to, refusal); err == nil {
		l.t.Errorf("%s %s: answered by %q, want nobody", network, to, name)
	}
}

func port(protocol string, host, container uint16) network.Port {
	return network.Port{Protocol: protocol, HostPort: host, ContainerPort: container}
}

// left lists what is of ours on the node.
func (l *lab) left(p *Plugin) []string {
	l.t.Helper()
	var all []string
	l.in(l.node, func() error {
		list, err := netlink.LinkList()
		for _, link := range list {
			if name := link.Attrs().Name; name != "up0" && name != "lo" {
				all = append(all, link.Type()+" "+name)
			}
		}
		return err
	})
	there, err := p.table.exists(p.cfg.Table)
	if err != nil {
		l.t.Fatal(err)
	}
	if len(there) > 0 {
		all = append(all, "table")
	}
	return all
}

// holds fails unless the table is as it should be, with so many entries of host ports.
func (l *lab) holds(p *Plugin, entries int) {
	l.t.Helper()
	want := p.contents()
	n := 0
	for set, m := range want {
		if setFamily(set) == unix.NFPROTO_INET {
			n += len(m)
		}
	}
	if n != entries {
		l.t.Errorf("%d entries are known, want %d", n, entries)
	}
	if ok, err := p.table.holds(p.layout(), want); !ok || err != nil {
		l.t.Errorf("the table is not as it should be: %v", err)
	}
}
