package podspec

import (
	"strings"
	"testing"
)

func TestHostname(t *testing.T) {
	n := strings.Repeat
	for _, tc := range []struct {
		name, pod, spec string
		want            string
		wrong           string // the beginning of the error
	}{
		{name: "pod's name", spec: "{}", want: "web"},
		{name: "own", spec: "{hostname: db}", want: "db"},
		{name: "subdomain does not show", spec: "{subdomain: sub}", want: "web"},
		{name: "63 characters", pod: n("a", 63), spec: "{}", want: n("a", 63)},
		{name: "64 characters", pod: n("a", 64), spec: "{}", want: n("a", 63)},
		{name: "a dash at the cut", pod: n("a", 62) + "-b", spec: "{}", want: n("a", 62)},
		{name: "a dot at the cut", pod: n("a", 62) + ".b", spec: "{}", want: n("a", 62)},
		{name: "several at the cut", pod: n("a", 60) + "-.-b", spec: "{}", want: n("a", 60)},
		{name: "nothing left", pod: n("-", 64), spec: "{}", wrong: "spec.hostname: no usable host name"},
		{name: "dots in a pod's name", pod: "web.0", spec: "{}", want: "web.0"},

		{name: "own is no label", spec: "{hostname: a.b}", wrong: `spec.hostname: "a.b": `},
		{name: "own is too long", spec: "{hostname: " + n("a", 64) + "}", wrong: `spec.hostname: "aaa`},
		{name: "subdomain is no label", spec: "{subdomain: A}", wrong: `spec.subdomain: "A": `},

		{name: "override", spec: "{hostnameOverride: a.b, hostname: db, subdomain: sub}", want: "a.b"},
		{name: "override has no domain", spec: "{hostnameOverride: a, subdomain: sub, setHostnameAsFQDN: true}", want: "a"},
		{name: "override is cut", spec: "{hostnameOverride: " + n("a", 62) + ".b}", want: n("a", 62)},
		{name: "override is no subdomain", spec: "{hostnameOverride: A_B}", wrong: `spec.hostnameOverride: "A_B": `},
		{name: "empty override", spec: "{hostnameOverride: '', hostname: db}", want: "db"},

		{name: "as FQDN", spec: "{subdomain: sub, setHostnameAsFQDN: true}", want: "web.sub.prod.svc.cluster.local"},
		{name: "as FQDN, no subdomain", spec: "{setHostnameAsFQDN: true}", want: "web"},
		{name: "as FQDN, of 64", spec: "{hostname: " + n("h", 37) + ", subdomain: sub, setHostnameAsFQDN: true}", want: n("h", 37) + ".sub.prod.svc.cluster.local"},
		{name: "as FQDN, of 65", spec: "{hostname: " + n("h", 38) + ", subdomain: sub, setHostnameAsFQDN: true}", wrong: "failed to construct FQDN from pod hostname and cluster domain, FQDN "},
		{name: "not as FQDN, of 65", spec: "{hostname: " + n("h", 38) + ", subdomain: sub}", want: n("h", 38)},

		{name: "host network", spec: "{hostNetwork: true, hostname: db}", want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.spec)
			if tc.pod != "" {
				in.Pod.Name = tc.pod
			}
			plan, err := Sandbox(in, 0)
			if tc.wrong != "" {
				if !strings.HasPrefix(text(err), tc.wrong) {
					t.Errorf("error = %v, want %q", err, tc.wrong)
				}
				return
			}
			if err != nil || plan.Config.Hostname != tc.want {
				t.Errorf("hostname = %q (%v), want %q", plan.Config.Hostname, err, tc.want)
			}
		})
	}
}

const managedHosts = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

func TestHostsFile(t *testing.T) {
	const aliases = "hostAliases: [{ip: 1.2.3.4, hostnames: [a, b.c]}, {ip: '::5', hostnames: [d]}]"
	const aliased = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::5\td\n"
	for _, tc := range []struct {
		name, spec string
		ips        []string
		want       string
	}{
		{"one address", "{}", []string{"10.1.0.7"}, managedHosts + "10.1.0.7\tweb\n"},
		{"two addresses", "{}", []string{"10.1.0.7", "fd00::7"}, managedHosts + "10.1.0.7\tweb\nfd00::7\tweb\n"},
		{"a domain", "{hostname: h, subdomain: s}", []string{"10.1.0.7", "fd00::7"}, managedHosts + "10.1.0.7\th.s.prod.svc.cluster.local\th\nfd00::7\th.s.prod.svc.cluster.local\th\n"},
		{"aliases", "{" + aliases + "}", []string{"10.1.0.7"}, managedHosts + "10.1.0.7\tweb\n" + aliased},
		{"host network", "{hostNetwork: true}", nil, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost node1\n"},
		{"host network, aliases", "{hostNetwork: true, " + aliases + "}", []string{"192.0.2.1"}, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost node1\n" + aliased},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, tc.spec)
			in.PodIPs = tc.ips
			if got := hostsFile(in); got != tc.want {
				t.Errorf("hosts file =\n%s, want\n%s", got, tc.want)
			}
		})
	}
}

func TestHostsFileWithoutClusterDomain(t *testing.T) {
	in := input(t, "{subdomain: s, setHostnameAsFQDN: true}")
	in.PodIPs, in.Node.ClusterDomain = []string{"10.1.0.7"}, ""
	if got, want := hostsFile(in), managedHosts+"10.1.0.7\tweb.s.prod.svc.\tweb\n"; got != want {
		t.Errorf("hosts file =\n%s, want\n%s", got, want)
	}
	if got, want := sandbox(t, in).Hostname, "web.s.prod.svc."; got != want {
		t.Errorf("hostname = %q, want %q", got, want)
	}
}

func TestHostsFileMount(t *testing.T) {
	for _, tc := range []struct {
		name, network, mounts string
		ips                   []string
		dir                   string
		want                  bool
	}{
		{name: "addresses", network: "false", ips: []string{"10.1.0.7"}, dir: "/pods/u1", want: true},
		{name: "none yet", network: "false", dir: "/pods/u1"},
		{name: "host network without addresses", network: "true", dir: "/pods/u1", want: true},
		{name: "own", network: "false", mounts: "{name: v, mountPath: /etc/hosts}", ips: []string{"10.1.0.7"}, dir: "/pods/u1"},
		{name: "own, host network", network: "true", mounts: "{name: v, mountPath: /etc/hosts/}", dir: "/pods/u1"},
		{name: "own beside it", network: "false", mounts: "{name: v, mountPath: /etc}", ips: []string{"10.1.0.7"}, dir: "/pods/u1", want: true},
		{name: "no directory", network: "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(t, "{hostNetwork: "+tc.network+", containers: [{name: app, image: i, volumeMounts: ["+tc.mounts+"]}]}")
			in.PodIPs, in.PodDir, in.Volumes = tc.ips, tc.dir, map[string]string{"v": "/v"}
			plan, err := Container(in, "app", ContainerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			managed := false
			for _, m := range plan.Config.Mounts {
				if m.HostPath == "/pods/u1/etc-hosts" {
					managed = m.ContainerPath == "/etc/hosts" && !m.Readonly && m.SelinuxRelabel
				}
			}
			written := false
			for _, f := range plan.Files {
				if f.Path == "/pods/u1/etc-hosts" {
					written = f.Mode == 0o644 && !f.Keep && f.Content == hostsFile(in)
				}
			}
			if managed != tc.want || written != tc.want {
				t.Errorf("mounted %t, written %t; want %t", managed, written, tc.want)
			}
		})
	}
}
