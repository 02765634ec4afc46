package cni

import (
	"net"
	"net/netip"
	"testing"

	"github.com/nodewright/nodewright/network"
)

// freePort returns a port of TCP and UDP on which nobody listens.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		c, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		_ = l.Close()
		if err == nil {
			_ = c.Close()
			return uint16(port)
		}
	}
	t.Fatal("no port is free")
	return 0
}

// A port on which a process of the node listens, one of the agent's own and one of another
// pod are refused before any plugin runs. A port of a pod is held until its end, and by the
// next agent too.
func TestHostPortsAreHeld(t *testing.T) {
	own := freePort(t)
	r := newRig(t, false, func(c *Config) { c.Reserved = []uint16{own} })
	r.install("portmap")
	r.write("10-net.conflist", oneConf("net", "1.0.0", `{"type":"portmap","capabilities":{"portMappings":true}}`))
	with := func(id, proto string, port uint16) network.Attachment {
		a := pod(id)
		a.Ports = []network.Port{{Protocol: proto, HostPort: port, ContainerPort: 80}}
		return a
	}
	refused := func(a network.Attachment, text string) {
		t.Helper()
		k, err := r.up(a)
		wantCode(t, err, network.AlreadyExists, text)
		if ran := r.heard("ADD"); len(ran) > 0 {
			t.Errorf("ADD of %q", kinds(ran))
		}
		if err := r.down(k); err != nil {
			t.Error(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listening := netip.MustParseAddrPort(l.Addr().String())
	refused(with("a", "TCP", listening.Port()), "listens on "+listening.String())
	refused(with("b", "tcp", own), "is one of the agent's own")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	k := r.mustUp(with("c", "tcp", port))
	r.heard("ADD")
	refused(with("d", "tcp", port), "is taken by pod c")
	taken := func() bool {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)})
		if err == nil {
			_ = l.Close()
		}
		return err != nil
	}
	if !taken() {
		t.Error("a process can listen on the port of a pod")
	}
	r.again()
	if err := r.p.Recovered(t.Context(), []network.Kept{k}); err != nil {
		t.Fatal(err)
	}
	if !taken() {
		t.Error("a process can listen on the port of a pod after a restart")
	}
	if err := r.down(k); err != nil || taken() {
		t.Errorf("after the end of the pod: %v, the port is taken: %v", err, taken())
	}
}
