package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

func TestAPodTalksToEverybody(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
	a, b := l.attach(p, "a"), l.attach(p, "b")
	if a.ip.String() != "10.214.0.2" || a.ip6().String() != "fd00:214::2" || b.ip.String() != "10.214.0.3" {
		t.Errorf("addresses %v and %v", a.Result.IPs, b.Result.IPs)
	}
	for _, ns := range []struct {
		name string
		g    guest
	}{{"a", a}, {"b", b}} {
		l.serve(ns.g.ns, "tcp", ":80", ns.name)
	}
	l.serve(l.node, "tcp", ":81", "node")
	l.serve(l.outside, "tcp", ":82", "outside")
	l.asks(a.ns, "tcp", "10.214.0.3:80", "b", "10.214.0.2")
	l.asks(a.ns, "tcp", "[fd00:214::3]:80", "b", "fd00:214::2")
	l.asks(l.node, "tcp", "10.214.0.3:80", "b", "10.214.0.1")
	l.asks(a.ns, "tcp", "10.214.0.1:81", "node", "10.214.0.2")
	l.asks(a.ns, "tcp", "192.0.2.1:81", "node", "10.214.0.2")
	// The machine outside has no route to pods: it sees the node.
	l.asks(a.ns, "tcp", "192.0.2.2:82", "outside", "192.0.2.1")
	l.asks(a.ns, "tcp", "[2001:db8::2]:82", "outside", "2001:db8::1")
	l.in(l.node, func() error {
		veth, err := netlink.LinkByName(vethName("nw", "id-a"))
		if err != nil {
			return err
		}
		prot, err := netlink.LinkGetProtinfo(veth)
		if err != nil || !prot.Hairpin {
			t.Errorf("port %+v, %v; want hairpin", prot, err)
		}
		return nil
	})
	l.in(a.ns, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if mac := eth0.Attrs().HardwareAddr.String(); mac != "0a:58:0a:d6:00:02" {
			t.Errorf("MAC address %s", mac)
		}
		if ra, err := readSysctl("ipv6/conf/eth0/accept_ra"); ra != "0" {
			t.Errorf("the pod takes router advertisements: %s, %v", ra, err)
		}
		return nil
	})
	l.in(l.node, func() error {
		if ra, err := readSysctl("ipv6/conf/nw0/accept_ra"); ra != "0" {
			t.Errorf("the node takes router advertisements of pods: %s, %v", ra, err)
		}
		for _, other := range []string{"all", "up0", "lo"} {
			if v, err := readSysctl("ipv4/conf/" + other + "/route_localnet"); v != "0" {
				t.Errorf("route_localnet of %s is %s, %v", other, v, err)
			}
		}
		return nil
	})
	l.detach(p, a)
	l.detach(p, a)
	l.detach(p, b)
	if left := l.left(p); !slices.Equal(left, []string{"bridge nw0", "table"}) {
		t.Errorf("left: %v", left)
	}
}

func TestHostPortsAnswerFromEverywhere(t *testing.T) {
	for _, nf := range []string{"0", "1"} { // whether bridges give their packets to the rules of IP
		t.Run("bridge-nf "+nf, func(t *testing.T) { hostPorts(t, nf) })
	}
}

func hostPorts(t *testing.T, nf string) {
	l := newLab(t)
	missing := false
	l.in(l.node, func() (err error) {
		for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
			err = errors.Join(err, writeSysctl("bridge/"+name, nf))
		}
		if missing = errors.Is(err, os.ErrNotExist); missing {
			return nil
		}
		return err
	})
	if missing && nf == "1" {
		t.Skip("this kernel has no br_netfilter")
	}
	p := l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")})
	web := l.attach(p, "web", port("tcp", 8080, 80), port("udp", 8080, 53), port("tcp", 9999, 99),
		network.Port{Protocol: "tcp", HostIP: nodeAddr.Addr(), HostPort: 8081, ContainerPort: 80},
		network.Port{Protocol: "tcp", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 8082, ContainerPort: 80},
		network.Port{Protocol: "tcp", HostIP: nodeAddr6.Addr(), HostPort: 8083, ContainerPort: 80},
		network.Port{Protocol: "tcp", HostIP: netip.MustParseAddr("0.0.0.0"), HostPort: 8084, ContainerPort: 80},
	)
	other := l.attach(p, "other")
	l.serve(web.ns, "tcp", ":80", "web")
	l.serve(web.ns, "udp4", web.ip.String()+":53", "dns")
	for _, c := range []struct{ network, addr, from, want string }{
		{"outside tcp", "192.0.2.1:8080", "192.0.2.2", "web"},
		{"outside udp", "192.0.2.1:8080", "192.0.2.2", "dns"},
		{"outside tcp", "[2001:db8::1]:8080", "2001:db8::2", "web"},
		{"outside tcp", "192.0.2.1:8081", "192.0.2.2", "web"},
		{"outside tcp", "[2001:db8::1]:8083", "2001:db8::2", "web"},
		{"outside tcp", "192.0.2.1:8084", "192.0.2.2", "web"},
		{"node tcp", "127.0.0.1:8080", "10.214.0.1", "web"},
		{"node udp", "127.0.0.1:8080", "10.214.0.1", "dns"},
		{"node tcp", "127.0.0.1:8082", "10.214.0.1", "web"},
		{"node tcp", "192.0.2.1:8080", "", "web"},
		{"node tcp", "10.214.0.1:8080", "10.214.0.1", "web"},
		{"other tcp", "192.0.2.1:8080", "10.214.0.1", "web"},
		{"other udp", "10.214.0.1:8080", "10.214.0.1", "dns"},
		{"other tcp", "[2001:db8::1]:8080", "fd00:214::1", "web"},
		{"web tcp", "192.0.2.1:8080", "10.214.0.1", "web"},
		{"web tcp", "10.214.0.1:8080", "10.214.0.1", "web"},
		{"web udp", "192.0.2.1:8080", "10.214.0.1", "dns"},
		{"web tcp", "[2001:db8::1]:8080", "fd00:214::1", "web"},
	} {
		who, proto, _ := strings.Cut(c.network, " ")
		ns := map[string]guest{"outside": {ns: l.outside}, "node": {ns: l.node}, "other": other, "web": web}[who].ns
		t.Run(who+" "+proto+" "+c.addr, func(t *testing.T) {
			sub := *l
			sub.t = t
			sub.asks(ns, proto, c.addr, c.want, c.from)
		})
	}
	// Each address has its own, and what is the node's alone is nobody else's.
	l.asksInVain(l.outside, "tcp", "192.0.2.1:8082")
	l.asksInVain(l.node, "tcp", "127.0.0.1:8081")
	l.asksInVain(l.outside, "tcp", "[2001:db8::1]:8084")
	l.asksInVain(l.outside, "tcp", "192.0.2.1:9999") // nobody listens in the pod
	l.holds(p, 10)
	l.detach(p, web)
	l.holds(p, 0)
	l.asksInVain(l.outside, "tcp", "192.0.2.1:8080")
}

// The kernel translates SCTP whether it has sockets of it or not.
func TestHostPortsOfSCTP(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "s", port("sctp", 3868, 38))
	var in, out int
	l.in(g.ns, func() (err error) {
		in, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	defer func() { _ = unix.Close(in) }()
	l.in(l.outside, func() (err error) {
		out, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	defer func() { _ = unix.Close(out) }()
	if err := unix.Sendto(out, sctpInit(40000, 3868), 0, &unix.SockaddrInet4{Addr: nodeAddr.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	tv := unix.NsecToTimeval(testTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1500)
	n, _, err := unix.Recvfrom(in, b, 0)
	if err != nil || n < 24 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	head := int(b[0]&0xf) * 4
	if to := int(b[head+2])<<8 | int(b[head+3]); to != 38 || net.IP(b[16:20]).String() != g.ip.String() {
		t.Errorf("came to %v port %d, want %v port 38", net.IP(b[16:20]), to, g.ip)
	}
}

// A pod makes up packets for services of the node that listen on 127.0.0.1 alone.
func TestNoPodReachesTheNodesLoopback(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "evil", network.Port{Protocol: "udp", HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 5353, ContainerPort: 53})
	service := l.serve(l.node, "udp4", "127.0.0.1:1234", "service")
	open := l.serve(l.node, "udp4", "10.214.0.1:1235", "open")
	mine := l.serve(g.ns, "udp4", g.ip.String()+":53", "mine")
	gw := macOf(netip.MustParseAddr("10.214.0.1"))
	loop := netip.MustParseAddr("127.0.0.1")
	l.sendFrame(g.ns, "eth0", gw, g.ip, loop, 1234)
	l.sendFrame(g.ns, "eth0", gw, loop, netip.MustParseAddr("10.214.0.1"), 1235) // from 127.0.0.1, as it were
	l.sendFrame(g.ns, "eth0", gw, g.ip, netip.MustParseAddr("10.214.0.1"), 1235)
	var mac net.HardwareAddr
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("up0")
		mac = link.Attrs().HardwareAddr
		return err
	})
	l.sendFrame(l.outside, "eth0", mac, outsideAddr.Addr(), loop, 5353) // a neighbour
	l.asks(l.node, "udp4", "127.0.0.1:5353", "mine", "10.214.0.1")
	l.eventually(func() bool { return open.Load() >= 1 }, "a good packet does not come")
	time.Sleep(50 * time.Millisecond) // longer than any took
	if service.Load() != 0 || open.Load() != 1 || mine.Load() != 1 {
		t.Errorf("%d packets came to 127.0.0.1, %d to the gateway, %d to the pod; want 0, 1, 1", service.Load(), open.Load(), mine.Load())
	}
}

// A peer that goes on sending from one port is known to the kernel by its old way.
func TestAPortOfUDPMovesToANewPod(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	ask := func(c net.Conn, want string) {
		t.Helper()
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if name, _, err := answer(c, testTimeout); err != nil || name != want {
			t.Errorf("answered by %q, %v; want %q", name, err, want)
		}
	}
	old := l.attach(p, "old", port("udp", 5000, 50))
	c, err := l.dial(l.outside, "udp4", "192.0.2.1:5000", testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	l.serve(old.ns, "udp4", ":50", "old")
	ask(c, "old")
	l.detach(p, old)
	fresh := l.attach(p, "fresh", port("udp", 5000, 50))
	l.serve(fresh.ns, "udp4", ":50", "fresh")
	ask(c, "fresh")
	l.detach(p, fresh)
	l.serve(l.node, "udp4", "192.0.2.1:5000", "node")
	ask(c, "node")
}

// Peers decide how many connections there are.
func TestManyConnectionsAreForgotten(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{})
	g := l.attach(p, "dns", port("udp", 53, 53), port("tcp", 53, 53))
	came := l.serve(g.ns, "udp4", ":53", "dns")
	var mac net.HardwareAddr
	l.in(l.node, func() error {
		link, err := netlink.LinkByName("up0")
		mac = link.Attrs().HardwareAddr
		return err
	})
	const flows = maxFlows + 500
	for sent := 0; sent < flows; sent += 500 { // no more than a socket's buffer holds
		before := came.Load()
		l.sendFrames(l.outside, "eth0", mac, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + sent/500)}), nodeAddr.Addr(), 53, 500)
		l.eventually(func() bool { return came.Load() > before }, "no packet comes")
	}
	count := func() int {
		n := 0
		_, _, err := p.links.flows(unix.AF_INET, func(f flow) bool {
			if f.proto == unix.IPPROTO_UDP && f.port == 53 {
				n++
			}
			return false
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n <= maxFlows {
		t.Skipf("the kernel keeps only %d connections", n)
	}
	l.detach(p, g)
	if n := count(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// A process of the node keeps its port, and a pod its own, whoever comes first.
func TestAHostPortIsTakenOnce(t *testing.T) {
	l := newLab(t)
	p := l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64"), Reserved: []uint16{10248}})
	l.serve(l.node, "tcp4", "127.0.0.1:7000", "node")
	l.serve(l.node, "tcp", ":7001", "node")
	l.serve(l.node, "udp6", "[::1]:7002", "node") // keeps its packets: there is no NAT of that address
	l.serve(l.node, "udp6", "[2001:db8::1]:7003", "node")
	at := func(addr, protocol string, host uint16) network.Port {
		return network.Port{Protocol: protocol, HostIP: netip.MustParseAddr(addr), HostPort: host, ContainerPort: 70}
	}
	self := fmt.Sprintf("this agent (process %d)", os.Getpid())
	for i, c := range []struct {
		port network.Port
		want string // "" if it is served
	}{
		{port("tcp", 7000, 70), "host port tcp 7000 on every address of the node: " + self + " listens on 127.0.0.1:7000"},
		{at("127.0.0.1", "tcp", 7000), "host port tcp 7000 on 127.0.0.1: " + self + " listens on 127.0.0.1:7000"},
		{at("192.0.2.1", "tcp", 7000), ""},
		{port("udp", 7000, 70), ""},
		{port("tcp", 7001, 70), "host port tcp 7001 on every address of the node: " + self + " listens on [::]:7001"},
		{at("192.0.2.1", "tcp", 7001), "listens on [::]:7001"},
		{at("2001:db8::1", "tcp", 7001), "listens on [::]:7001"},
		{port("udp", 7002, 70), ""},
		{port("udp", 7003, 70), "host port udp 7003 on every address of the node: " + self + " listens on [2001:db8::1]:7003"},
		{port("sctp", 7000, 70), ""},
		{port("tcp", 10248, 70), "host port tcp 10248 on every address of the node is one of the agent's own"},
		{at("192.0.2.99", "tcp", 7004), ""}, // an address that may come later
	} {
		g, err := l.tryAttach(p, l.attachment(fmt.Sprint("p", i), c.port))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.port, err)
		case c.want != "" && (codeOf(err) != network.AlreadyExists || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want %s", c.port, err, c.want)
		case err == nil:
			l.detach(p, g)
		}
	}
	if n := p.held.Len(); n != 0 {
		t.Errorf("%d sockets are left", n)
	}
	listen := func(kind, addr string) (err error) {
		l.in(l.node, func() error {
			if strings.HasPrefix(kind, "udp") {
				var c net.PacketConn
				if c, err = net.ListenPacket(kind, addr); err == nil {
					_ = c.Close()
				}
				return nil
			}
			var s net.Listener
			if s, err = net.Listen(kind, addr); err == nil {
				_ = s.Close()
			}
			return nil
		})
		return err
	}
	g := l.attach(p, "first", port("tcp", 7010, 70), port("udp", 7010, 70))
	l.serve(g.ns, "tcp", ":70", "pod")
	taken := func() {
		t.Helper()
		for _, c := range [][2]string{{"tcp4", "127.0.0.1:7010"}, {"tcp", ":7010"}, {"tcp6", "[2001:db8::1]:7010"}, {"udp4", "127.0.0.1:7010"}, {"udp6", "[::]:7010"}} {
			if err := listen(c[0], c[1]); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("%s %s: %v, want it to be in use", c[0], c[1], err)
			}
		}
		l.asks(l.node, "tcp", "127.0.0.1:7010", "pod", "")
	}
	taken()
	// The same after a restart.
	p.Close()
	p = l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64")}, g.Kept)
	l.holds(p, 4)
	taken()
	// A process that took the port while no agent ran keeps it.
	p.Close()
	l.serve(l.node, "tcp4", "127.0.0.1:7010", "node")
	p = l.plugin(Config{Subnet6: netip.MustParsePrefix("fd00:214::/64"), Reserved: []uint16{7010}}, g.Kept)
	l.holds(p, 2) // those of UDP
	l.asks(l.node, "tcp", "127.0.0.1:7010", "node", "")
	l.detach(p, g)
	if err := listen("udp", ":7010"); err != nil || p.held.Len() != 0 {
		t.Errorf("the port of a pod that has gone: %v, %d are held", err, p.held.Len())
	}
}
