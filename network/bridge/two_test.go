package bridge

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// second is the configuration of another agent's bridge on the same node.
func (l *lab) second() Config {
	return Config{StateDir: filepath.Join(l.dir, "second"), Name: "nw-second", Table: "nodewright_second", VethPrefix: "n2"}
}

// Agents that share a node leave each other's pods their way: whoever turns forwarding
// on drops that of others, but not of pods, and the last one turns it off.
func TestTwoBridgesOnANode(t *testing.T) {
	for _, before := range []string{"0", "1"} {
		t.Run("ip_forward "+before, func(t *testing.T) {
			l := newLab(t)
			far := l.namespace("far")
			l.cable(l.node, "up1", netip.MustParsePrefix("198.51.100.1/24"), netip.Prefix{}, far, "eth0", netip.MustParsePrefix("198.51.100.2/24"), netip.Prefix{})
			l.in(far, func() error { return defaultRoute("eth0", netip.MustParseAddr("198.51.100.1")) })
			l.in(l.outside, func() error { return defaultRoute("eth0", nodeAddr.Addr()) })
			l.in(l.node, func() error { return writeSysctl("ipv4/ip_forward", before) })
			l.serve(far, "tcp", ":80", "far")

			a := l.plugin(Config{})
			one := l.attach(a, "one", port("tcp", 8081, 80))
			l.serve(one.ns, "tcp", ":80", "one")
			b := l.plugin(l.second())
			two := l.attach(b, "two", port("tcp", 8082, 80))
			l.serve(two.ns, "tcp", ":80", "two")
			check := func(g guest, name, hostPort string) {
				t.Helper()
				l.asks(g.ns, "tcp", "198.51.100.2:80", "far", "198.51.100.1")
				l.asks(l.outside, "tcp", "192.0.2.1:"+hostPort, name, "")
			}
			check(one, "one", "8081")
			check(two, "two", "8082")
			l.asks(one.ns, "tcp", netip.AddrPortFrom(two.ip, 80).String(), "two", "")
			l.asks(two.ns, "tcp", netip.AddrPortFrom(one.ip, 80).String(), "one", "")
			strangers := func() {
				t.Helper()
				if before == "0" {
					l.asksInVain(l.outside, "tcp", "198.51.100.2:80")
				} else {
					l.asks(l.outside, "tcp", "198.51.100.2:80", "far", "")
				}
			}
			strangers()

			if _, err := l.tryAttach(b, l.attachment("three", port("tcp", 8081, 80))); err == nil || !strings.Contains(err.Error(), "host port tcp 8081 on every address of the node is taken by a pod of another agent (table inet nodewright)") {
				t.Errorf("a port of the other's pod: %v", err)
			}
			check(one, "one", "8081")
			l.attach(b, "four", port("udp", 8081, 80))

			a.Close() // and begins again
			a = l.plugin(Config{}, one.Kept)
			check(one, "one", "8081")
			check(two, "two", "8082")

			if err := a.Reset(l.ctx()); err != nil {
				t.Fatal(err)
			}
			check(two, "two", "8082")
			strangers()
			if err := b.Reset(l.ctx()); err != nil {
				t.Fatal(err)
			}
			l.in(l.node, func() error {
				v4, err := readSysctl("ipv4/ip_forward")
				if v4 != before {
					t.Errorf("ip_forward is %s at the end", v4)
				}
				return err
			})
			if left := l.left(a); !slices.Equal(left, []string{"veth up1"}) {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Two agents that begin on a new machine at the same time choose the same subnet. The
// one that comes second to make its bridge gives its pods another one.
func TestTwoBridgesThatChoseOneSubnet(t *testing.T) {
	l := newLab(t)
	a, b := l.plugin(Config{}), l.plugin(l.second())
	if a.subnet != b.subnet {
		t.Fatalf("%s and %s; want the same, or this tests nothing", a.subnet, b.subnet)
	}
	one := l.attach(a, "one")
	two, err := l.tryAttach(b, l.attachment("two"))
	if err == nil {
		t.Fatalf("a pod got %s beside %s", two.ip, one.ip)
	}
	l.remove("two")
	two = l.attach(b, "two") // as whoever wants it tries again
	if a.subnet.Overlaps(b.subnet) || !b.subnet.Contains(two.ip) {
		t.Errorf("subnets %s and %s, address %s", a.subnet, b.subnet, two.ip)
	}
	l.serve(one.ns, "tcp", ":80", "one")
	l.asks(two.ns, "tcp", netip.AddrPortFrom(one.ip, 80).String(), "one", "")
	b.Close()
	if again := l.plugin(l.second(), two.Kept); again.subnet != b.subnet {
		t.Errorf("subnet %s after a restart, %s before", again.subnet, b.subnet)
	}
	if a.Close(); l.plugin(Config{}, one.Kept).subnet != a.subnet {
		t.Error("the first one's subnet has changed")
	}
}

// What is done alone waits for others of the same namespace, and for nobody else.
func TestAlone(t *testing.T) {
	l := newLab(t)
	other, err := openNetns(l.path("node"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	ended := make(chan struct{})
	err = alone(l.ctx(), l.node, func() error {
		go func() {
			defer close(ended)
			_ = alone(l.ctx(), other, func() error { return nil })
		}()
		err := alone(l.ctx(), l.outside, func() error { return nil })
		select {
		case <-ended:
			err = errors.New("two at once")
		default:
		}
		return err
	})
	<-ended
	if err != nil {
		t.Error(err)
	}
}
