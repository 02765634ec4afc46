package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/network"
)

// inMemory is a plugin that plans, and has no kernel.
func inMemory(t testing.TB, subnet string, kept ...network.Kept) *Plugin {
	t.Helper()
	p := &Plugin{
		cfg: Config{}.withDefaults(), log: zap.NewNop(), name: "nw0", subnet: netip.MustParsePrefix(subnet),
		events: newInbox(), gate: make(chan struct{}, 1), pods: map[string]*pod{}, claims: map[claim]string{}, busy: map[string]chan struct{}{},
	}
	if _, err := p.adopt(kept); err != nil {
		t.Fatal(err)
	}
	return p
}

func planOf(t testing.TB, p *Plugin, id string, ports ...network.Port) (plan, error) {
	t.Helper()
	b, err := p.Plan(t.Context(), network.Attachment{ID: id, Ports: ports})
	if err != nil {
		return plan{}, err
	}
	one, err := parsePlan(b)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return one, nil
}

func TestA24HasAddressesFor253Pods(t *testing.T) {
	p := inMemory(t, "10.214.0.0/24")
	seen := map[netip.Addr]bool{}
	for i := range 300 {
		one, err := planOf(t, p, fmt.Sprint("p", i))
		if i < 253 {
			if err != nil || seen[one.IPv4.Addr()] {
				t.Fatalf("pod %d: %v, %v", i, one.IPv4, err)
			}
			seen[one.IPv4.Addr()] = true
			continue
		}
		if codeOf(err) != network.ResourceExhausted || !strings.Contains(err.Error(), "no free address in 10.214.0.0/24 (253 in use)") {
			t.Fatalf("pod %d: %v", i, err)
		}
	}
	for _, never := range []string{"10.214.0.0", "10.214.0.1", "10.214.0.255"} {
		if seen[netip.MustParseAddr(never)] {
			t.Errorf("%s was given", never)
		}
	}
	// Those that end are used again in the order of their ends.
	for _, id := range []string{"p7", "p3", "p100"} {
		p.drop(id)
	}
	for i, want := range []string{"10.214.0.9", "10.214.0.5", "10.214.0.102"} {
		if one, err := planOf(t, p, fmt.Sprint("n", i)); err != nil || one.IPv4.Addr().String() != want {
			t.Errorf("%v, %v; want %s", one.IPv4, err, want)
		}
	}
}

func TestAnAddressThatWasFreedIsTheLastToBeUsedAgain(t *testing.T) {
	p := inMemory(t, "10.214.0.0/29")
	first, err := planOf(t, p, "a")
	if err != nil {
		t.Fatal(err)
	}
	p.drop("a")
	for i := range 4 {
		if one, err := planOf(t, p, fmt.Sprint(i)); err != nil || one.IPv4 == first.IPv4 {
			t.Errorf("%v, %v", one.IPv4, err)
		}
	}
	if one, err := planOf(t, p, "b"); err != nil || one.IPv4 != first.IPv4 {
		t.Errorf("%v, %v; want %v", one.IPv4, err, first.IPv4)
	}
}

// Against a model that remembers when each address was freed.
func TestAddressesAreGivenByTheTimeTheyWereFree(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		subnet := netip.PrefixFrom(netip.MustParseAddr("10.1.0.0"), 26+r.IntN(4))
		a := newAddresses(subnet)
		freed := map[netip.Addr]int{} // when
		var used []netip.Addr
		for step := 1; step < 500; step++ {
			if len(used) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(used))
				a.free(used[i])
				freed[used[i]] = step
				used = slices.Delete(used, i, i+1)
				continue
			}
			addr, err := a.give()
			size := 1<<(32-subnet.Bits()) - 3
			if len(used) == size {
				if !errors.Is(err, errFull) {
					t.Fatalf("seed %d: %v of a full subnet, %v", seed, addr, err)
				}
				continue
			}
			if err != nil || !a.givable(addr) || slices.Contains(used, addr) {
				t.Fatalf("seed %d: %v, %v", seed, addr, err)
			}
			for other := subnet.Addr(); subnet.Contains(other); other = other.Next() {
				if a.givable(other) && other != addr && !slices.Contains(used, other) && freed[other] < freed[addr] {
					t.Fatalf("seed %d: %v was given, %v is free for longer", seed, addr, other)
				}
			}
			used = append(used, addr)
		}
	}
}

func TestTheSearchGoesOnAfterARestart(t *testing.T) {
	old := inMemory(t, "10.214.0.0/29")
	var kept []network.Kept
	for _, id := range []string{"a", "b", "c", "d"} {
		b, err := old.Plan(t.Context(), network.Attachment{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, network.Kept{Attachment: network.Attachment{ID: id}, Saved: b, Result: &network.Result{}})
	}
	p := inMemory(t, "10.214.0.0/29", kept[2], kept[3]) // .4 and .5
	var got []string
	for i := range 3 {
		one, err := planOf(t, p, fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, one.IPv4.Addr().String())
	}
	if want := []string{"10.214.0.6", "10.214.0.2", "10.214.0.3"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := planOf(t, p, "more"); codeOf(err) != network.ResourceExhausted {
		t.Errorf("%v", err)
	}
}

func TestDamagedPlansKeepTheirAddresses(t *testing.T) {
	p := inMemory(t, "10.214.0.0/29",
		network.Kept{Attachment: network.Attachment{ID: "a", Ports: []network.Port{port("tcp", 80, 80)}}, Saved: []byte("{"), Result: &network.Result{IPs: []netip.Addr{netip.MustParseAddr("10.214.0.2")}}},
		network.Kept{Attachment: network.Attachment{ID: "b"}, Saved: []byte("{}")})
	if one, err := planOf(t, p, "c"); err != nil || one.IPv4.Addr().String() != "10.214.0.3" {
		t.Errorf("%v, %v", one.IPv4, err)
	}
	if _, err := planOf(t, p, "d", port("tcp", 80, 80)); codeOf(err) != network.AlreadyExists {
		t.Errorf("%v", err)
	}
	if c := p.contents(); c.size() != 1 {
		t.Errorf("%d entries", c.size())
	}
	p.drop("b")
	p.drop("a")
	if n := p.addrs.inUse(); n != 1 {
		t.Errorf("%d addresses in use", n)
	}
}

func TestPlanIsCheckedAndTheSameAgain(t *testing.T) {
	p := inMemory(t, "10.214.0.0/24")
	for _, id := range []string{"", "-a", "a/b", "a b", strings.Repeat("x", 129), "\x00", "ä"} {
		if _, err := p.Plan(t.Context(), network.Attachment{ID: id}); codeOf(err) != network.InvalidArgument {
			t.Errorf("%q: %v", id, err)
		}
	}
	one, err := planOf(t, p, "a", port("tcp", 80, 80))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := planOf(t, p, "a", port("tcp", 80, 80)); err != nil || again != one {
		t.Errorf("%+v, %v; want %+v", again, err, one)
	}
	if _, err := planOf(t, p, "a", port("tcp", 81, 80)); codeOf(err) != network.FailedPrecondition {
		t.Errorf("%v", err)
	}
	if _, err := p.adopt(nil); codeOf(err) != network.FailedPrecondition {
		t.Errorf("recovered twice: %v", err)
	}
}

func TestBandwidthIsWarnedOf(t *testing.T) {
	for want, a := range map[string]network.Attachment{
		"":  {},
		"a": {Ingress: 1000}, "b": {Egress: 1000},
		"c": {Annotations: map[string]string{"kubernetes.io/egress-bandwidth": "1M"}},
	} {
		if got := unserved(a); (len(got) == 1) != (want != "") {
			t.Errorf("%+v: %q", a, got)
		}
	}
}

func TestHostPortsOfAnAttachment(t *testing.T) {
	ip := netip.MustParseAddr
	for _, c := range []struct {
		name string
		port network.Port
		v6   bool
		want string // claims, a warning, or an error
	}{
		{"all addresses", port("tcp", 80, 8080), false, "tcp 80 on every address of the node"},
		{"both families", port("udp", 80, 8080), true, "udp 80 on every address of the node, udp 80 on every address of the node (v6)"},
		{"no host port", port("tcp", 0, 8080), true, ""},
		{"IPv4 alone", network.Port{Protocol: "sctp", HostIP: ip("0.0.0.0"), HostPort: 1, ContainerPort: 2}, true, "sctp 1 on every address of the node"},
		{"IPv6 alone", network.Port{Protocol: "tcp", HostIP: ip("::"), HostPort: 1, ContainerPort: 2}, true, "tcp 1 on every address of the node (v6)"},
		{"mapped", network.Port{Protocol: "tcp", HostIP: ip("::ffff:192.0.2.1"), HostPort: 1, ContainerPort: 2}, true, "tcp 1 on 192.0.2.1"},
		{"IPv6 without any", network.Port{Protocol: "tcp", HostIP: ip("2001:db8::1"), HostPort: 1, ContainerPort: 2}, false, "is not served: the pod has no IPv6 address"},
		{"IPv6 loopback", network.Port{Protocol: "tcp", HostIP: ip("::1"), HostPort: 1, ContainerPort: 2}, true, "is not served: there is no NAT of the IPv6 loopback address"},
		{"protocol", port("icmp", 1, 2), false, `ports[0].protocol "icmp": want tcp, udp or sctp`},
		{"no protocol", port("", 1, 2), false, `ports[0].protocol ""`},
		{"container port", port("tcp", 1, 0), false, "ports[0].containerPort 0: want 1 to 65535"},
		{"zone", network.Port{Protocol: "tcp", HostIP: ip("fe80::1%eth0"), HostPort: 1, ContainerPort: 2}, true, "ports[0].hostIP fe80::1%eth0"},
		{"multicast", network.Port{Protocol: "tcp", HostIP: ip("224.0.0.1"), HostPort: 1, ContainerPort: 2}, true, "ports[0].hostIP 224.0.0.1"},
	} {
		all, warnings, err := forwards([]network.Port{c.port}, c.v6)
		var got []string
		for _, f := range all {
			s := f.String()
			if f.V6 {
				s += " (v6)"
			}
			got = append(got, s)
		}
		text := strings.Join(append(got, warnings...), ", ")
		if err != nil {
			text = err.Error()
			if codeOf(err) != network.InvalidArgument {
				t.Errorf("%s: code of %v", c.name, err)
			}
		}
		if !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
	if all, _, err := forwards([]network.Port{port("tcp", 1, 2), port("tcp", 1, 2)}, false); err != nil || len(all) != 1 {
		t.Errorf("the same twice: %v, %v", all, err)
	}
	if _, _, err := forwards([]network.Port{port("tcp", 1, 2), port("tcp", 1, 3)}, false); codeOf(err) != network.InvalidArgument {
		t.Errorf("two ways: %v", err)
	}
	if _, _, err := forwards(make([]network.Port, maxPorts+1), false); codeOf(err) != network.InvalidArgument {
		t.Errorf("too many: %v", err)
	}
}

func TestElements(t *testing.T) {
	pod := plan{IPv4: netip.MustParsePrefix("10.214.0.2/24"), IPv6: netip.MustParsePrefix("fd00::2/64")}
	for _, m := range (layout{bridge: "nw0", subnet: pod.IPv4.Masked(), subnet6: pod.IPv6.Masked()}).mappings() {
		c := claim{V6: strings.Contains(m.name, "6"), Proto: 6, Port: 0x1f90}
		if strings.HasSuffix(m.name, "addr") {
			c.Addr = netip.MustParseAddr(map[bool]string{false: "192.0.2.1", true: "2001:db8::1"}[c.V6])
		}
		e := forward{c, 80}.element(pod)
		if e.set != m.name || len(e.key) != int(m.keyLen) || len(e.val) != int(m.valLen) {
			t.Errorf("%+v does not fit %+v", e, m)
		}
		if !strings.HasSuffix(e.key, "\x06\x00\x00\x00\x1f\x90\x00\x00") || !strings.HasSuffix(e.val, "\x00\x50\x00\x00") {
			t.Errorf("%q: %q", e.key, e.val)
		}
	}
}

// The number of rules does not grow with pods, and no message is too large.
func TestATableOfAnySize(t *testing.T) {
	l := layout{bridge: "nw0", subnet: netip.MustParsePrefix("10.0.0.0/16"), subnet6: netip.MustParsePrefix("fd00::/64"), drop4: true, drop6: true, guard: true}
	rules := func(n int) (rules, elements, largest int) {
		c := contents{}
		for i := range n {
			ip := fromUint(toUint(l.subnet.Addr()) + uint32(i) + 2)
			pod := plan{Veth: vethName("nw", ip.String()), IPv4: netip.PrefixFrom(ip, 16), IPv6: netip.PrefixFrom(twin(ip, l.subnet, l.subnet6), 64)}
			for _, e := range senders(pod, true) {
				c.add(e)
			}
			c.add(forward{claim{Proto: 6, Port: uint16(i)}, 0xbeef}.element(pod))
			c.add(forward{claim{Proto: 17, Port: uint16(i), Addr: netip.MustParseAddr("192.0.2.1")}, 0xbeef}.element(pod))
		}
		if c.size() != 6*n || len(c.elements()) != 6*n {
			t.Fatalf("%d entries", c.size())
		}
		b := wholeTable("t", 0, l.families(), l, c)
		if b.err != nil {
			t.Fatal(b.err)
		}
		for _, m := range b.msgs {
			largest = max(largest, len(m.Data))
			switch uint16(m.Header.Type & 0xff) {
			case unix.NFT_MSG_NEWRULE:
				rules++
			case unix.NFT_MSG_NEWSETELEM:
				elements += bytes.Count(m.Data, []byte{0xbe, 0xef, 0, 0})
			}
		}
		return rules, elements, largest
	}
	few, _, _ := rules(1)
	many, elements, largest := rules(1000)
	if few != many || elements != 2000 || largest > 16<<10 {
		t.Errorf("%d rules for one pod, %d for 1000; %d entries, messages of up to %d bytes", few, many, elements, largest)
	}
}

func TestChooseSubnet(t *testing.T) {
	take := func(all ...string) []taken {
		var out []taken
		for _, s := range all {
			out = append(out, taken{netip.MustParsePrefix(s), "route " + s})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		taken []taken
		want  string
	}{
		{"nothing", nil, "10.214.0.0/24"},
		{"default routes", take("0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1"), "10.214.0.0/24"},
		{"the first", take("10.214.0.128/25"), "10.214.1.0/24"},
		{"one address", take("10.214.0.7/32"), "10.214.1.0/24"},
		{"all of 10", take("10.0.0.0/8"), "192.168.192.0/24"},
		{"all of 10, and more", take("10.0.0.0/8", "192.168.192.0/19"), "192.168.224.0/24"},
		{"everything", take("10.0.0.0/8", "192.168.0.0/16"), ""},
		{"others", take("172.17.0.0/16", "10.42.0.0/16", "fd00::/8"), "10.214.0.0/24"},
	} {
		got, err := chooseSubnet(c.taken)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %v, %v; want %s", c.name, got, err, c.want)
		}
	}
}

func TestAChosenSubnetOverlapsNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var all []taken
		for range r.IntN(300) {
			base := ranges[r.IntN(2)]
			addr := fromUint(toUint(base.Addr()) + r.Uint32N(1<<(32-base.Bits())))
			all = append(all, taken{netip.PrefixFrom(addr, 18+r.IntN(15)).Masked(), "x"})
		}
		got, err := chooseSubnet(all)
		if err != nil {
			continue
		}
		for _, x := range all {
			if x.prefix.Overlaps(got) {
				t.Fatalf("seed %d: %v overlaps %v", seed, got, x.prefix)
			}
		}
		if validSubnet(got) != nil {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

func TestResolvConf(t *testing.T) {
	text := "# nameserver 1.1.1.1\nsearch a b\nnameserver 10.214.0.53\nnameserver\n nameserver fe80::1%eth0 \nnameserver x\n" + strings.Repeat("nameserver 9.9.9.9\n", 1000)
	all := parseResolvConf(text)
	if len(all) != maxServers || all[0].prefix.String() != "10.214.0.53/32" || all[1].prefix.String() != "fe80::1/128" {
		t.Errorf("%d: %v", len(all), all[:2])
	}
}

func TestPlanForwarding(t *testing.T) {
	for _, c := range []struct {
		name         string
		have4, have6 string
		with6        bool
		before       state
		set          string
		after4       string
		after6       string
	}{
		{"was on", "1", "1", true, state{}, "false false", "", ""},
		{"was off", "0", "0", true, state{}, "true true", "now", "now"},
		{"IPv6 is not ours", "0", "0", false, state{}, "true false", "now", ""},
		{"set by us", "1", "1", true, state{Forward4: "now", Forward6: "now"}, "false false", "now", "now"},
		{"set by us, and off again", "0", "0", true, state{Forward4: "now", Forward6: "now"}, "true true", "now", "now"},
		{"set by us before the boot", "1", "0", true, state{Forward4: "old", Forward6: "old"}, "false true", "", "now"},
	} {
		f := planForwarding(c.have4, c.have6, c.with6, "now", c.before)
		if got := fmt.Sprint(f.set4, f.set6); got != c.set || f.ours.Forward4 != c.after4 || f.ours.Forward6 != c.after6 {
			t.Errorf("%s: %s, %+v", c.name, got, f.ours)
		}
	}
}

func TestADamagedStateIsSetAside(t *testing.T) {
	for name, text := range map[string]string{
		"json": "{", "version": `{"v":9}`, "subnet": `{"v":1,"subnet":"10.0.0.0/31"}`, "path": `{"v":1,"acceptRA":["../../kernel"]}`, "size": `{"v":1}` + strings.Repeat(" ", maxState),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, stateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readState(stateDir(dir), zap.NewNop())
		if err != nil || s.Subnet.IsValid() || s.Version != stateVersion {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if _, err := os.Stat(filepath.Join(dir, stateFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: still there, %v", name, err)
		}
		s.Subnet = netip.MustParsePrefix("10.214.7.0/24")
		if err := writeState(stateDir(dir), s); err != nil {
			t.Fatal(err)
		}
		if again, err := readState(stateDir(dir), zap.NewNop()); err != nil || !sameState(s, again) {
			t.Errorf("%+v, %v", again, err)
		}
	}
}

func TestWhichConnectionsAreForgotten(t *testing.T) {
	of := func(proto uint8, dst string, port uint16, answers string) flow {
		return flow{proto: proto, dst: netip.MustParseAddr(dst), port: port, answerer: netip.MustParseAddr(answers)}
	}
	pod, node := netip.MustParseAddr("10.214.0.2"), netip.MustParseAddr("192.0.2.1")
	all := udpFlows{claims: map[claim]bool{{Proto: 17, Port: 53}: true}, local: map[netip.Addr]bool{node: true}, pod: pod}
	one := all
	one.claims = map[claim]bool{{Proto: 17, Port: 53, Addr: node}: true}
	for _, c := range []struct {
		name            string
		flow            flow
		u               udpFlows
		added, detached bool
	}{
		{"to the node itself", of(17, "192.0.2.1", 53, "192.0.2.1"), all, true, false},
		{"to the pod", of(17, "192.0.2.1", 53, "10.214.0.2"), all, false, true},
		{"to another pod", of(17, "192.0.2.1", 53, "10.214.0.3"), one, true, false},
		{"of another port", of(17, "192.0.2.1", 54, "192.0.2.1"), all, false, false},
		{"of TCP", of(6, "192.0.2.1", 53, "192.0.2.1"), all, false, false},
		{"of somebody to a server outside", of(17, "9.9.9.9", 53, "9.9.9.9"), all, false, false},
		{"of another address", of(17, "192.0.2.9", 53, "192.0.2.9"), one, false, false},
		{"of the loopback", of(17, "127.0.0.1", 53, "127.0.0.1"), all, true, false},
		{"nothing", flow{proto: 17}, all, false, false},
	} {
		gone := c.u
		gone.gone = true
		if a, d := c.u.match(c.flow), gone.match(c.flow); a != c.added || d != c.detached {
			t.Errorf("%s: %v when added, %v when removed", c.name, a, d)
		}
	}
}

func TestAccepts(t *testing.T) {
	in, out := ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, "nw0"), ifname(expr.MetaKeyOIFNAME, expr.CmpOpEq, "nw0")
	accept := verdict(expr.VerdictAccept, "")
	for _, c := range []struct {
		name    string
		rule    []expr.Any
		in, out bool
	}{
		{"from", rule(in, accept), true, false},
		{"to", rule(out, []expr.Any{&expr.Counter{}}, accept), false, true},
		{"both at once", rule(in, out, accept), false, false},
		{"more is asked", rule(in, family(unix.NFPROTO_IPV4), accept), false, false},
		{"a set is asked", rule(in, []expr.Any{&expr.Lookup{}}, accept), false, false},
		{"drops", rule(in, verdict(expr.VerdictDrop, "")), false, false},
		{"another", rule(ifname(expr.MetaKeyIIFNAME, expr.CmpOpEq, "br0"), accept), false, false},
		{"all but it", rule(ifname(expr.MetaKeyIIFNAME, expr.CmpOpNeq, "nw0"), accept), false, false},
		{"everything", rule(accept), false, false},
		{"no verdict", in, false, false},
	} {
		if i, o := accepts(c.rule, "nw0"); i != c.in || o != c.out {
			t.Errorf("%s: %v, %v", c.name, i, o)
		}
	}
}

func TestSchedule(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := newSchedule()
	if c, wait := s.next(now); c != 0 || wait != 0 {
		t.Errorf("nothing has changed: %v in %v", c, wait)
	}
	s.add(changedTable|changedRoutes, now)
	if c, _ := s.next(now); c != changedTable {
		t.Errorf("%v is due, want the table at once", c)
	}
	s.done(changedTable, nil, now)
	s.add(changedTable, now) // somebody fights
	if c, wait := s.next(now); c != 0 || wait != restorePause {
		t.Errorf("%v in %v, want a pause of %v", c, wait, restorePause)
	}
	now = now.Add(restorePause)
	for i, want := range []time.Duration{failedPause, 2 * failedPause, 4 * failedPause} {
		s.done(changedTable, errors.New("boom"), now)
		s.add(changedTable, now) // hurries nobody
		if at := s.due[changedTable].Sub(now); at != want {
			t.Errorf("failure %d is tried again in %v, want %v", i, at, want)
		}
		now = now.Add(want)
	}
	for range 10 {
		s.done(changedTable, errors.New("boom"), now)
	}
	if at := s.due[changedTable].Sub(now); at != maxPause {
		t.Errorf("tried again in %v, want %v", at, maxPause)
	}
	s.done(changedTable, nil, now)
	now = now.Add(lookQuiet)
	if c, _ := s.next(now); c != changedRoutes {
		t.Errorf("%v is due, want the routes", c)
	}
	s.done(changedRoutes, nil, now)
	for range 1000 { // a router that learns
		s.add(changedRoutes, now)
	}
	if c, wait := s.next(now); c != 0 || wait != lookPause {
		t.Errorf("%v in %v, want one look in %v", c, wait, lookPause)
	}
}

func TestValidNames(t *testing.T) {
	for name, want := range map[string]bool{"nw0": true, "br-lan_1": true, "": false, "a/b": false, "..": false, "a b": false, "x%d": false, "all": false, "default": false, "-x": false, strings.Repeat("x", 16): false} {
		if validIfname(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if a, b := vethName("nw", "a"), vethName("nw", "b"); a == b || !isVethName("nw", a) || len(a) != 13 || isVethName("nx", a) || isVethName("nw", a+"0") || isVethName("nw", "nw-bridge-of-x") {
		t.Errorf("%s, %s", a, b)
	}
}

// No program is run: everything is done by the kernel's interfaces.
func TestNoProgramIsRun(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if i.Path.Value == `"os/exec"` {
				t.Errorf("%s imports %s", file, i.Path.Value)
			}
		}
	}
}

func FuzzSavedPlan(f *testing.F) {
	one, err := planOf(f, inMemory(f, "10.214.0.0/24"), "a")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one.bytes())
	f.Add([]byte(`{"v":1,"bridge":"nw0","table":"t","veth":"up0","ipv4":"10.0.0.2/24","ipv6":"fd00::2/64"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePlan(b)
		if err != nil {
			return
		}
		if again, err := parsePlan(p.bytes()); err != nil || again != p {
			t.Errorf("%s: %+v, %v", b, again, err)
		}
		if strings.ContainsAny(p.Veth+p.Bridge+p.Table, "/. %\x00") || len(p.Veth) > 15 {
			t.Errorf("names %q %q %q", p.Veth, p.Bridge, p.Table)
		}
		if addr := p.IPv4.Addr(); addr == gateway(p.IPv4) || addr == p.IPv4.Masked().Addr() {
			t.Errorf("address %v", p.IPv4)
		}
		// Whatever it says, it can be taken over.
		q := inMemory(t, "10.214.0.0/24", network.Kept{Attachment: network.Attachment{ID: "a"}, Saved: b})
		if _, err := q.Plan(t.Context(), network.Attachment{ID: "b"}); err != nil {
			t.Error(err)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"v":1,"subnet":"10.214.0.0/24","forward4":"x","acceptRA":["eth0"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseState(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseState(out); len(out) <= maxState && (err != nil || !sameState(s, again)) {
			t.Errorf("%s: %+v, %v", out, again, err)
		}
		for _, name := range s.AcceptRA {
			if filepath.Join("/a", name) != "/a/"+name {
				t.Errorf("%q leads elsewhere", name)
			}
		}
	})
}

// What is read of the node's configuration names ports that there are, and whole addresses.
func FuzzConfig(f *testing.F) {
	f.Add("tcp/53,udp/53")
	f.Add("!tcp/22,!udp/69")
	f.Add("nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver ::ffff:192.0.2.2\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseReach(text); err == nil && r.validate() != nil {
			t.Errorf("%q is %+v: %v", text, r, r.validate())
		}
		for _, one := range parseResolvConf(text) {
			if a := one.prefix.Addr(); !one.prefix.IsSingleIP() || a.Zone() != "" || a.Is4In6() {
				t.Errorf("%q has %v", text, one.prefix)
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWROUTE), []byte{2, 24, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0, 8, 0, 1, 0, 10, 214, 0, 0})
	f.Add(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE), []byte{1, 0, 0, 0, 15, 0, 1, 0, 'n', 'o', 'd', 'e', 'w', 'r', 'i', 'g', 'h', 't', 0, 0})
	f.Fuzz(func(_ *testing.T, kind uint16, data []byte) {
		w := watched{
			table: "nodewright", bridge: "nw0", index: 7, subnets: []netip.Prefix{netip.MustParsePrefix("10.214.0.0/24")},
			own: func(uint32) bool { return false }, veth: func(string) bool { return true },
		}
		m := netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: data}
		w.ofRoutes(m)
		w.ofRules(m)
		parseFlow(data)
	})
}

func TestEvents(t *testing.T) {
	w := watched{
		table: "nodewright", bridge: "nw0", index: 7, subnets: []netip.Prefix{netip.MustParsePrefix("10.214.0.0/24")},
		own: func(port uint32) bool { return port == 99 }, veth: func(name string) bool { return name == "nwpod" },
	}
	nft := func(kind int, port uint32, family byte, table string) netlink.Message {
		b := &batch{}
		b.delTable(family, table)
		m := b.msgs[0]
		m.Header.Type, m.Header.PID = netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8|kind), port
		return m
	}
	link := func(kind uint16, index byte, name string, master uint32) netlink.Message {
		data := make([]byte, unix.SizeofIfInfomsg)
		data[4] = index
		ae := netlink.NewAttributeEncoder()
		ae.String(unix.IFLA_IFNAME, name)
		if master != 0 {
			ae.Uint32(unix.IFLA_MASTER, master)
		}
		attrs, err := ae.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind)}, Data: append(data, attrs...)}
	}
	route := func(to string) netlink.Message {
		p := netip.MustParsePrefix(to)
		data := make([]byte, unix.SizeofRtMsg)
		data[0], data[1] = unix.AF_INET, byte(p.Bits())
		ae := netlink.NewAttributeEncoder()
		ae.Bytes(unix.RTA_DST, p.Addr().AsSlice())
		attrs, err := ae.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWROUTE}, Data: append(data, attrs...)}
	}
	for _, c := range []struct {
		name string
		got  change
		want change
	}{
		{"our table is gone", w.ofRules(nft(unix.NFT_MSG_DELTABLE, 5, unix.NFPROTO_INET, "nodewright")), changedTable},
		{"an entry of it", w.ofRules(nft(unix.NFT_MSG_DELSETELEM, 5, unix.NFPROTO_INET, "nodewright")), changedTable},
		{"by us", w.ofRules(nft(unix.NFT_MSG_DELSETELEM, 99, unix.NFPROTO_INET, "nodewright")), 0},
		{"of another family", w.ofRules(nft(unix.NFT_MSG_NEWRULE, 5, unix.NFPROTO_IPV4, "nodewright")), changedRules},
		{"another table's entries", w.ofRules(nft(unix.NFT_MSG_NEWSETELEM, 5, unix.NFPROTO_INET, "kube-proxy")), 0},
		{"another table's chain", w.ofRules(nft(unix.NFT_MSG_NEWCHAIN, 5, unix.NFPROTO_IPV4, "filter")), changedRules},
		{"a new generation", w.ofRules(nft(unix.NFT_MSG_NEWGEN, 5, unix.NFPROTO_INET, "nodewright")), complete},
		{"the bridge", w.ofRoutes(link(unix.RTM_DELLINK, 7, "nw0", 0)), changedBridge | complete},
		{"the bridge, renamed", w.ofRoutes(link(unix.RTM_NEWLINK, 7, "x", 0)), changedBridge | complete},
		{"a pod on it", w.ofRoutes(link(unix.RTM_NEWLINK, 9, "nwpod", 7)), complete},
		{"a pod off it", w.ofRoutes(link(unix.RTM_NEWLINK, 9, "nwpod", 0)), changedBridge | complete},
		{"a pod's end", w.ofRoutes(link(unix.RTM_DELLINK, 9, "nwpod", 0)), complete},
		{"another link", w.ofRoutes(link(unix.RTM_NEWLINK, 9, "eth0", 0)), complete},
		{"a route over it", w.ofRoutes(route("10.208.0.0/12")), changedRoutes | complete},
		{"a route into it", w.ofRoutes(route("10.214.0.7/32")), changedRoutes | complete},
		{"another route", w.ofRoutes(route("10.215.0.0/24")), complete},
		{"a setting of all interfaces", w.ofRoutes(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNETCONF}, Data: []byte{2, 0, 0, 0, 8, 0, 1, 0, 255, 255, 255, 255}}), changedRoutes | complete},
		{"a setting of one", w.ofRoutes(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWNETCONF}, Data: []byte{2, 0, 0, 0, 8, 0, 1, 0, 7, 0, 0, 0}}), complete},
		{"a half of all", w.ofRoutes(route("0.0.0.0/1")), complete},
	} {
		if c.got != c.want {
			t.Errorf("%s: %b, want %b", c.name, c.got, c.want)
		}
	}
}

func TestAskingForTheStatusCostsNothing(t *testing.T) {
	p := inMemory(t, "10.214.0.0/24")
	for _, err := range []error{nil, network.Errorf(network.Unavailable, "no")} {
		p.setBroken(err)
		if n := testing.AllocsPerRun(100, func() { _ = p.Status() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
