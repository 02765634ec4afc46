package status

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func addrs(t testing.TB, text string) []netip.Addr {
	t.Helper()
	var out []netip.Addr
	for _, s := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestParseNodeIPs(t *testing.T) {
	for _, tc := range []struct{ text, want, ignored, err string }{
		{"", "", "", ""},
		{",", "", "", ""},
		{"10.0.0.1", "10.0.0.1", "", ""},
		{" 10.0.0.1 ", "10.0.0.1", "", ""},
		{"fd00::1", "fd00::1", "", ""},
		{"FD00:0::1", "fd00::1", "", ""},
		{"0.0.0.0", "0.0.0.0", "", ""},
		{"::", "::", "", ""},
		{"10.0.0.1,fd00::1", "10.0.0.1 fd00::1", "", ""},
		{"fd00::1 , 10.0.0.1", "fd00::1 10.0.0.1", "", ""},
		{"010.000.00.01", "10.0.0.1", "", ""},
		{"::ffff:10.0.0.1", "10.0.0.1", "", ""},
		{"10.0.0.0/24", "", "10.0.0.0/24", ""},
		{"nonsense", "", "nonsense", ""},
		{"10.0.0.1,nonsense", "10.0.0.1", "nonsense", ""},
		{"10.0.0.1,nonsense,fd00::1", "10.0.0.1 fd00::1", "nonsense", ""},
		{"fe80::1%eth0", "", "fe80::1%eth0", ""},
		{"1.2.3", "", "1.2.3", ""},
		{"1..2.3", "", "1..2.3", ""},
		{"10.0.0.1,10.0.0.2", "10.0.0.1 10.0.0.2", "", "one IPv4 and one IPv6 address"},
		{"fd00::1,fd00::2", "fd00::1 fd00::2", "", "one IPv4 and one IPv6 address"},
		{"10.0.0.1,fd00::1,10.0.0.3", "10.0.0.1 fd00::1 10.0.0.3", "", "two at most"},
		{"0.0.0.0,fd00::1", "0.0.0.0 fd00::1", "", "cannot be combined with another address"},
		{"10.0.0.1,::", "10.0.0.1 ::", "", "cannot be combined with another address"},
	} {
		got, ignored, err := ParseNodeIPs(tc.text)
		if !slices.Equal(got, addrs(t, tc.want)) || strings.Join(ignored, " ") != tc.ignored {
			t.Errorf("%q: got %v, ignored %q", tc.text, got, ignored)
		}
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: error %v, want %q", tc.text, err, tc.err)
		}
	}
}

func FuzzParseNodeIPs(f *testing.F) {
	for _, s := range []string{"", "10.0.0.1,fd00::1", "010.1.1.1", "::", "x,,1.2.3.4", "0.0.0.0,1.1.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ips, _, err := ParseNodeIPs(text)
		if err != nil {
			return
		}
		if len(ips) > 2 {
			t.Fatalf("%q: %v", text, ips)
		}
		again, ignored, err := ParseNodeIPs(joinAddrs(ips))
		if err != nil || len(ignored) > 0 || !slices.Equal(again, ips) {
			t.Fatalf("%q: %v, then %v, %v, %v", text, ips, again, ignored, err)
		}
	})
}

func TestCheckNodeIP(t *testing.T) {
	host := addrs(t, "10.0.0.1 fd00::1 ::1 127.0.0.1 224.0.0.5 169.254.1.1")
	for ip, want := range map[string]string{
		"10.0.0.1": "", "fd00::1": "", "127.0.0.1": "loopback", "::1": "loopback", "224.0.0.5": "multicast",
		"169.254.1.1": "link-local", "0.0.0.0": "unspecified", "::": "unspecified", "10.0.0.9": "not an address of this machine",
	} {
		if err := checkNodeIP(netip.MustParseAddr(ip), host); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", ip, err, want)
		}
	}
	if checkNodeIP(netip.Addr{}, host) == nil {
		t.Error("no address: no error")
	}
}

func TestSetAddresses(t *testing.T) {
	const h = " host"
	for _, tc := range []struct {
		name             string
		external         bool
		ips, host, names string
		default4, six    string
		before, note     string
		want, wantNote   string
		err              string
		hostname         string
	}{
		{name: "given", ips: "10.1.1.1", host: "10.1.1.1", want: "10.1.1.1" + h},
		{name: "given v6", ips: "fd00::5", host: "fd00::5", want: "fd00::5" + h},
		{name: "given, not here", ips: "10.1.1.1", host: "10.1.1.2", before: "10.9.9.9" + h, want: "10.9.9.9" + h, err: "not an address of this machine"},
		{name: "loopback", ips: "127.0.0.1", host: "127.0.0.1", err: "loopback"},
		{name: "second is multicast", ips: "10.1.1.1 ff00::1", host: "10.1.1.1 ff00::1", err: "multicast"},
		{name: "two", ips: "fd00::5 10.1.1.1", host: "10.1.1.1 fd00::5", want: "fd00::5 10.1.1.1" + h},
		{name: "stale note goes", ips: "10.1.1.1", host: "10.1.1.1", note: "10.1.1.1", want: "10.1.1.1" + h},
		{name: "none: default route", default4: "10.0.0.2", want: "10.0.0.2" + h},
		{name: "0.0.0.0: default route", ips: "0.0.0.0", default4: "10.0.0.2", six: "fd00::2", want: "10.0.0.2" + h},
		{name: ":: default route", ips: "::", default4: "10.0.0.2", six: "fd00::2", want: "fd00::2" + h},
		{name: "only v6 default", six: "fd00::2", want: "fd00::2" + h},
		{name: "nothing at all", before: "10.9.9.9", want: "10.9.9.9", err: "no default route"},
		{name: "name is an address", hostname: "10.3.3.3", default4: "10.0.0.2", want: "10.3.3.3 10.3.3.3"},
		{name: "name in DNS", names: "10.4.4.4", host: "10.4.4.4", default4: "10.0.0.2", want: "10.4.4.4" + h},
		{name: "name in DNS, first is loopback", names: "127.0.1.1 10.4.4.4", host: "10.4.4.4 127.0.1.1", want: "10.4.4.4" + h},
		{name: "name in DNS, elsewhere", names: "10.4.4.4", host: "10.0.0.2", default4: "10.0.0.2", want: "10.0.0.2" + h},
		{name: "name in DNS, v4 before v6", names: "fd00::4 10.4.4.4", host: "10.4.4.4 fd00::4", want: "10.4.4.4" + h},
		{name: "name in DNS, only v6", names: "fd00::4", host: "fd00::4", default4: "10.0.0.2", want: "fd00::4" + h},
		{name: "name in DNS, :: prefers v6", ips: "::", names: "10.4.4.4 fd00::4", host: "10.4.4.4 fd00::4", want: "fd00::4" + h},
		{name: "external, given", external: true, ips: "10.0.0.1", host: "10.0.0.1", want: "10.0.0.1" + h, wantNote: "10.0.0.1"},
		{name: "external, wrong note", external: true, ips: "10.0.0.1", host: "10.0.0.1", note: "10.0.0.3", want: "10.0.0.1" + h, wantNote: "10.0.0.1"},
		{name: "external, 0.0.0.0", external: true, ips: "0.0.0.0", default4: "10.0.0.2", note: "x", want: "10.0.0.2" + h},
		{name: "external, ::", external: true, ips: "::", six: "fd00::2", want: "fd00::2" + h},
		{name: "external, none", external: true, default4: "10.0.0.2", want: "host"},
		{name: "external, addresses there", external: true, ips: "10.0.0.1", host: "10.0.0.1", before: "10.8.8.8", want: "10.8.8.8", wantNote: "10.0.0.1"},
		{name: "external, addresses there, none given", external: true, before: "10.8.8.8", want: "10.8.8.8"},
		{name: "external, two", external: true, ips: "fd00::5 10.1.1.1", host: "10.1.1.1 fd00::5", want: "fd00::5 10.1.1.1" + h, wantNote: "fd00::5,10.1.1.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Addressing{Hostname: "host", External: tc.external, NodeIPs: addrs(t, tc.ips), Host: addrs(t, tc.host), Resolved: addrs(t, tc.names)}
			if tc.hostname != "" {
				in.Hostname = tc.hostname
			}
			if tc.default4 != "" {
				in.Default4 = netip.MustParseAddr(tc.default4)
			}
			if tc.six != "" {
				in.Default6 = netip.MustParseAddr(tc.six)
			}
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"other": "stays"}}}
			for _, a := range strings.Fields(tc.before) {
				node.Status.Addresses = append(node.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
			}
			if tc.note != "" {
				node.Annotations[AnnotationProvidedIP] = tc.note
			}
			err := setAddresses(node, in)
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			var got []string
			for _, a := range node.Status.Addresses {
				got = append(got, a.Address)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("addresses %q, want %q", got, tc.want)
			}
			if err == nil && node.Annotations[AnnotationProvidedIP] != tc.wantNote {
				t.Errorf("annotation %q, want %q", node.Annotations[AnnotationProvidedIP], tc.wantNote)
			}
			if node.Annotations["other"] != "stays" {
				t.Error("another annotation went")
			}
		})
	}
}
