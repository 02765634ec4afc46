package podspec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestParseResolvConf(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     resolver
		wrong    bool
	}{
		{name: "empty", in: ""},
		{name: "blank", in: " \n\t\n\n"},
		{name: "comment", in: "# nameserver 1.2.3.4\n"},
		{name: "indented comment", in: "   #search x\n"},
		{name: "unknown words", in: "domain corp\nsortlist 1.2.3.4\nfoo bar\n"},
		{name: "word alone", in: "nameservers 1.2.3.4\n"},

		{name: "servers accumulate", in: "nameserver 1.2.3.4\nnameserver 5.6.7.8\n", want: resolver{servers: []string{"1.2.3.4", "5.6.7.8"}}},
		{name: "one server to a line", in: "nameserver 1.2.3.4 5.6.7.8", want: resolver{servers: []string{"1.2.3.4"}}},
		{name: "trailing comment", in: "nameserver 1.2.3.4 #x", want: resolver{servers: []string{"1.2.3.4"}}},
		{name: "IPv6 with zone", in: "nameserver fe80::1%eth0", want: resolver{servers: []string{"fe80::1%eth0"}}},
		{name: "tabs and blanks", in: " \tnameserver \t1.2.3.4\t \r\n", want: resolver{servers: []string{"1.2.3.4"}}},
		{name: "no server", in: "nameserver", wrong: true},
		{name: "no server, but a line after it", in: "nameserver \nnameserver 1.2.3.4\nsearch a\n", want: resolver{servers: []string{"1.2.3.4"}, searches: []string{"a"}}, wrong: true},

		{name: "search", in: "search a b\tc", want: resolver{searches: []string{"a", "b", "c"}}},
		{name: "the last search counts", in: "search a b\nsearch c\n", want: resolver{searches: []string{"c"}}},
		{name: "an empty one as well", in: "search a b\nsearch\n"},
		{name: "final dots", in: "search foo. .", want: resolver{searches: []string{"foo"}}},
		{name: "dots inside stay", in: "search a.b.c. .d", want: resolver{searches: []string{"a.b.c", ".d"}}},

		{name: "options", in: "options ndots:5 rotate", want: resolver{options: []string{"ndots:5", "rotate"}}},
		{name: "of one name in a line", in: "options ndots:1 ndots:5", want: resolver{options: []string{"ndots:5"}}},
		{name: "of one name in two lines", in: "options ndots:1 rotate\noptions ndots:5 edns0", want: resolver{options: []string{"ndots:5", "rotate", "edns0"}}},
		{name: "no options", in: "options"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseResolvConf(tc.in)
			if show(got) != show(tc.want) {
				t.Errorf("parsed %s, want %s", show(got), show(tc.want))
			}
			if (err != nil) != tc.wrong {
				t.Errorf("error = %v, want one: %t", err, tc.wrong)
			}
		})
	}
}

func show(r resolver) string {
	return fmt.Sprintf("servers %q searches %q options %q", r.servers, r.searches, r.options)
}

func FuzzResolvConf(f *testing.F) {
	for _, s := range []string{"", "nameserver", "nameserver 1.2.3.4 #x", "search foo. .", "options a:1 a:2", "#\n;x", "search a\r\nsearch"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, _ := parseResolvConf(s)
		for _, list := range [][]string{r.servers, r.searches, r.options} {
			for _, v := range list {
				if v == "" || len(strings.Fields(v)) != 1 {
					t.Errorf("%q became the value %q", s, v)
				}
			}
		}
		// Writing the result and parsing it again must not change it.
		var b strings.Builder
		for _, v := range r.servers {
			fmt.Fprintf(&b, "nameserver %s\n", v)
		}
		dotted := slices.ContainsFunc(r.searches, func(v string) bool { return strings.HasSuffix(v, ".") })
		if dotted { // one dot is taken at each reading
			return
		}
		fmt.Fprintf(&b, "search %s\noptions %s\n", strings.Join(r.searches, " "), strings.Join(r.options, " "))
		again, err := parseResolvConf(b.String())
		if err != nil || show(again) != show(r) {
			t.Errorf("%q was read as %s, and as %s (%v) when written down", s, show(r), show(again), err)
		}
	})
}

// dns is the sandbox's resolver as one line.
func dns(c *runtimeapi.DNSConfig) string {
	return strings.Join(c.GetServers(), " ") + " | " + strings.Join(c.GetSearches(), " ") + " | " + strings.Join(c.GetOptions(), " ")
}

func TestDNS(t *testing.T) {
	const (
		cluster = "10.0.0.10 | prod.svc.cluster.local svc.cluster.local cluster.local corp.example | ndots:5"
		host    = "192.0.2.53 | corp.example | rotate"
	)
	noClusterDNS := func(in *Input) { in.Node.ClusterDNS = nil }
	for _, tc := range []struct {
		name, spec string
		edit       func(*Input)
		want       string
	}{
		{name: "ClusterFirst", spec: "{dnsPolicy: ClusterFirst}", want: cluster},
		{name: "by default", spec: "{}", want: cluster},
		{name: "ClusterFirst, host network", spec: "{dnsPolicy: ClusterFirst, hostNetwork: true}", want: host},
		{name: "ClusterFirstWithHostNet", spec: "{dnsPolicy: ClusterFirstWithHostNet}", want: cluster},
		{name: "ClusterFirstWithHostNet, host network", spec: "{dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true}", want: cluster},
		{name: "Default", spec: "{dnsPolicy: Default}", want: host},
		{name: "Default, host network", spec: "{dnsPolicy: Default, hostNetwork: true}", want: host},
		{name: "None", spec: "{dnsPolicy: None}", want: " |  | "},
		{name: "unknown", spec: "{dnsPolicy: Whatever}", want: cluster},
		{name: "unknown, host network", spec: "{dnsPolicy: Whatever, hostNetwork: true}", want: cluster},

		{name: "no cluster DNS", spec: "{}", edit: noClusterDNS, want: host},
		{name: "no cluster DNS, ClusterFirstWithHostNet", spec: "{dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true}", edit: noClusterDNS, want: host},
		{name: "no cluster domain", spec: "{}", edit: func(in *Input) { in.Node.ClusterDomain = "" }, want: "10.0.0.10 | corp.example | ndots:5"},
		{
			name: "cluster servers in order", spec: "{}", edit: func(in *Input) { in.Node.ClusterDNS = []string{"b", "a"} },
			want: "b a | prod.svc.cluster.local svc.cluster.local cluster.local corp.example | ndots:5",
		},
		{
			name: "a search of the host that the cluster has", spec: "{}",
			edit: func(in *Input) { in.Node.ResolvConf = "search x cluster.local y x\n" },
			want: "10.0.0.10 | prod.svc.cluster.local svc.cluster.local cluster.local x y | ndots:5",
		},

		{name: "no resolver on the node", spec: "{dnsPolicy: Default}", edit: func(in *Input) { in.Node.ResolvConf = "" }, want: "127.0.0.1 ::1 | . | "},
		{
			name: "no resolver on a node of one family", spec: "{dnsPolicy: Default}",
			edit: func(in *Input) { in.Node.ResolvConf, in.Node.IPs = "", []string{"2001:db8::1", "2001:db8::2"} },
			want: "::1 | . | ",
		},
		{
			name: "no resolver on a node without address", spec: "{dnsPolicy: Default}",
			edit: func(in *Input) { in.Node.ResolvConf, in.Node.IPs = "", nil },
			want: "127.0.0.1 | . | ",
		},
		{
			name: "no resolver on the node, cluster DNS", spec: "{}", edit: func(in *Input) { in.Node.ResolvConf = "" },
			want: "10.0.0.10 | prod.svc.cluster.local svc.cluster.local cluster.local | ndots:5",
		},

		{name: "None with its own", spec: "{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a], options: [{name: edns0}]}}", want: "1.1.1.1 | a | edns0"},
		{
			name: "own servers and searches come last, each once",
			spec: "{dnsPolicy: Default, dnsConfig: {nameservers: [1.1.1.1, 192.0.2.53, 1.1.1.1], searches: [x, corp.example]}}",
			want: "192.0.2.53 1.1.1.1 | corp.example x | rotate",
		},
		{name: "own option replaces", spec: "{dnsConfig: {options: [{name: ndots, value: '3'}, {name: edns0}]}}", want: strings.Replace(cluster, "ndots:5", "ndots:3 edns0", 1)},
		{name: "own option without value replaces", spec: "{dnsConfig: {options: [{name: ndots}]}}", want: strings.Replace(cluster, "ndots:5", "ndots", 1)},
		{name: "own option with an empty value", spec: "{dnsPolicy: None, dnsConfig: {options: [{name: a, value: ''}]}}", want: " |  | a:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.spec)
			if tc.edit != nil {
				tc.edit(&in)
			}
			if got := dns(sandbox(t, in).DnsConfig); got != tc.want {
				t.Errorf("resolver = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDNSOfBadResolvConf(t *testing.T) {
	for _, tc := range []struct {
		spec  string
		wrong bool
	}{
		{"{dnsPolicy: Default}", true},
		{"{dnsPolicy: ClusterFirst}", true},
		{"{dnsPolicy: None}", false}, // has no use for it
	} {
		in := input(t, tc.spec)
		in.Node.ResolvConf = "nameserver\n"
		_, err := Sandbox(in, 0)
		if got := strings.HasPrefix(text(err), "spec.dnsPolicy: resolv.conf: "); got != tc.wrong {
			t.Errorf("%s: error = %v, want one: %t", tc.spec, err, tc.wrong)
		}
	}
}

func TestDNSLimits(t *testing.T) {
	numbered := func(n, length int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("%0*d", length, i)
		}
		return out
	}
	long := strings.Repeat("x", 254)
	for _, tc := range []struct {
		name              string
		servers, searches []string
		wantServers       int
		want              []string
	}{
		{name: "three servers", servers: numbered(3, 1), wantServers: 3},
		{name: "four servers", servers: numbered(4, 1), wantServers: 3},
		{name: "32 searches", searches: numbered(32, 2), want: numbered(32, 2)},
		{name: "33 searches", searches: numbered(33, 2), want: numbered(32, 2)},
		{name: "253 characters", searches: []string{long[1:], "a"}, want: []string{long[1:], "a"}},
		{name: "254 characters", searches: []string{long, "a"}, want: []string{"a"}},
		{name: "cut to 32 before the long are dropped", searches: append([]string{long}, numbered(32, 2)...), want: numbered(31, 2)},
		{name: "2048 in all", searches: append(numbered(9, 203), strings.Repeat("y", 212)), want: append(numbered(9, 203), strings.Repeat("y", 212))},
		{name: "2049 in all", searches: append(numbered(9, 203), strings.Repeat("y", 213)), want: numbered(9, 203)},
		{name: "the last ones go", searches: append(numbered(10, 203), "1234567", "b", "c"), want: append(numbered(10, 203), "1234567")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := resolver{servers: tc.servers, searches: tc.searches}
			col := &collector{}
			r.limit(col)
			var said []string
			for _, w := range col.warnings {
				said = append(said, w.Reason+" "+w.Path)
			}
			cuts := 0
			for _, cut := range []bool{len(tc.servers) > len(r.servers), len(tc.searches) > len(r.searches)} {
				if cut {
					cuts++
				}
			}
			if want := slices.Repeat([]string{"DNSConfigForming spec.dnsPolicy"}, cuts); !slices.Equal(said, want) {
				t.Errorf("warnings %q, want %q", said, want)
			}
			if len(r.servers) != tc.wantServers || !slices.Equal(r.servers, tc.servers[:tc.wantServers]) {
				t.Errorf("servers = %q, want the first %d of %q", r.servers, tc.wantServers, tc.servers)
			}
			if !slices.Equal(r.searches, tc.want) {
				t.Errorf("searches = %q, want %q", r.searches, tc.want)
			}
		})
	}
}
