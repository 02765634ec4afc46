//go:build linux

package hostports

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// free returns claims of a port on which nobody listens, of UDP and TCP, of one address.
func free(t *testing.T, addr string) (tcp, udp Claim) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", addr+":0")
		if err != nil {
			t.Fatal(err)
		}
		at := netip.MustParseAddrPort(l.Addr().String())
		c, err := net.ListenPacket("udp", at.String())
		_ = l.Close()
		if err != nil {
			continue
		}
		_ = c.Close()
		return Claim{Proto: TCP, Addr: at.Addr(), Port: at.Port()}, Claim{Proto: UDP, Addr: at.Addr(), Port: at.Port()}
	}
	t.Fatal("no port is free")
	return tcp, udp
}

func TestTake(t *testing.T) {
	tcp, udp := free(t, "127.0.0.1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at := netip.MustParseAddrPort(l.Addr().String())
	listened := Claim{Proto: TCP, Port: at.Port()}
	own := Claim{Proto: TCP, Port: tcp.Port ^ 1}
	h := &Held{Reserved: []uint16{own.Port}}
	defer h.Close()
	for i, c := range []struct {
		owner  string
		claims []Claim
		want   string // in the error
		held   int
	}{
		{"a", nil, "", 0},
		{"a", []Claim{tcp, udp}, "", 2},
		{"a", []Claim{tcp, udp}, "", 2},
		{"b", []Claim{tcp}, fmt.Sprintf("host port tcp %d on 127.0.0.1 is taken by pod a", tcp.Port), 2},
		// The more specific claim counts: no process has the port.
		{"b", []Claim{{Proto: TCP, Port: tcp.Port}}, "", 2},
		{"b", []Claim{{Proto: UDP, Port: udp.Port}}, "", 2},
		{"b", []Claim{own}, "is one of the agent's own", 2},
		{"b", []Claim{listened}, fmt.Sprintf("host port tcp %d on every address of the node: this agent", at.Port()), 2},
		{"b", []Claim{{Proto: TCP, Addr: at.Addr(), Port: at.Port()}}, "listens on " + at.String(), 2},
	} {
		err := h.Take(c.owner, c.claims...)
		switch {
		case c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d: %s takes %v: %v, want %q", i, c.owner, c.claims, err, c.want)
		case h.Len() != c.held:
			t.Errorf("%d: %d are held, want %d", i, h.Len(), c.held)
		}
	}
	busy := func() bool {
		l, err := net.Listen("tcp", netip.AddrPortFrom(tcp.Addr, tcp.Port).String())
		if err == nil {
			_ = l.Close()
		}
		return err != nil
	}
	if !busy() {
		t.Error("a process can listen on a port that is held")
	}
	h.Give("b")
	if h.Len() != 2 {
		t.Errorf("%d are held after those of another owner were given back", h.Len())
	}
	h.Give("a")
	if busy() {
		t.Error("a port that was given back is held")
	}
}

// All claims are taken, or none.
func TestTakeOfManyIsAllOrNone(t *testing.T) {
	tcp, udp := free(t, "127.0.0.1")
	other, _ := free(t, "127.0.0.1")
	l, err := net.Listen("tcp", netip.AddrPortFrom(other.Addr, other.Port).String())
	if err != nil {
		t.Skip(err) // another process has it by now
	}
	defer func() { _ = l.Close() }()
	h := &Held{}
	defer h.Close()
	if err := h.Take("a", tcp, udp, other); !errors.Is(err, ErrTaken) || h.Len() != 0 {
		t.Errorf("%v, %d are held", err, h.Len())
	}
}

func TestClaims(t *testing.T) {
	for addr, want := range map[string]string{
		"": "[tcp 80 on every address of the node tcp 80 on every address of the node]", "0.0.0.0": "[tcp 80 on every address of the node]",
		"192.0.2.1": "[tcp 80 on 192.0.2.1]", "::ffff:192.0.2.1": "[tcp 80 on 192.0.2.1]", "fe80::1%eth0": "[tcp 80 on fe80::1]",
	} {
		ip, _ := netip.ParseAddr(addr)
		if got := fmt.Sprint(Claims(TCP, ip, 80)); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

func TestListener(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tcp.Close() }()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = udp.Close() }()
	this := fmt.Sprintf("this agent (process %d)", os.Getpid())
	for _, tc := range []struct {
		proto uint8
		at    net.Addr
		addr  string
		want  string
	}{
		{TCP, tcp.Addr(), "", this}, {TCP, tcp.Addr(), "127.0.0.1", this}, {TCP, tcp.Addr(), "192.0.2.1", ""},
		{UDP, udp.LocalAddr(), "", this}, {UDP, udp.LocalAddr(), "192.0.2.1", ""},
	} {
		addr, _ := netip.ParseAddr(tc.addr)
		if pod, who := Listener(tc.proto, addr, netip.MustParseAddrPort(tc.at.String()).Port()); pod != "" || who != tc.want {
			t.Errorf("protocol %d, %s, address %q: pod %q, %q; want %q", tc.proto, tc.at, tc.addr, pod, who, tc.want)
		}
	}
	if pod, who := Listener(TCP, netip.Addr{}, 0); pod != "" || who != "" {
		t.Errorf("port 0: pod %q, %q; want nobody", pod, who)
	}
}

func FuzzDiag(f *testing.F) {
	f.Add(make([]byte, diagReply))
	f.Add([]byte{2, 10, 0, 0, 0, 80})
	f.Fuzz(func(t *testing.T, b []byte) {
		if addr, _, _, ok := parseDiag(b); ok && (!addr.IsValid() || len(b) < diagReply) {
			t.Errorf("%v of %d bytes", addr, len(b))
		}
	})
}
