package network

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAttachmentsThatAreRefused(t *testing.T) {
	port := func(p Port) Attachment {
		if p.HostPort == 0 {
			p.HostPort = 80
		}
		return Attachment{ID: "a", Ports: []Port{p}}
	}
	for words, a := range map[string]Attachment{
		`ID is ""`:                             {},
		`ID is "-a"`:                           {ID: "-a"},
		`ID is ".."`:                           {ID: ".."},
		`ID is "a/b"`:                          {ID: "a/b"},
		`ID is "a\x00"`:                        {ID: "a\x00"},
		`ID is "aaa`:                           {ID: strings.Repeat("a", 129)},
		`Namespace is "a b"`:                   {ID: "a", Namespace: "a b"},
		`Name is "a;K8S_POD_UID=b"`:            {ID: "a", Name: "a;K8S_POD_UID=b"},
		`UID is "a/b"`:                         {ID: "a", UID: "a/b"},
		`Hostname is "ä"`:                      {ID: "a", Hostname: "ä"},
		`CgroupParent is "/a\n"`:               {ID: "a", CgroupParent: "/a\n"},
		`Ingress is 999 bits/s; want 0`:        {ID: "a", Ingress: 999},
		`Egress is 1000000000000001 bits/s`:    {ID: "a", Egress: 1_000_000_000_000_001},
		`Ports[0].Protocol is "TCP"; want tcp`: port(Port{Protocol: "TCP", ContainerPort: 1}),
		`Ports[0].ContainerPort is 0; want 1`:  port(Port{Protocol: "tcp"}),
		`Ports[0].HostIP is fe80::1%eth0`:      port(Port{Protocol: "tcp", ContainerPort: 1, HostIP: netip.MustParseAddr("fe80::1%eth0")}),
		`has 4097 Ports; want at most 4096`:    {ID: "a", Ports: make4097()},
		`as JSON; want at most 524288`:         {ID: "a", Annotations: map[string]string{"k": strings.Repeat("x", 1<<20)}},
	} {
		_, _, err := normal(a)
		if CodeOf(err) != InvalidArgument || err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	for _, a := range []Attachment{
		{ID: "a"}, {ID: "A.b_c-9"}, {ID: strings.Repeat("a", 128)}, {ID: "a.tmp"}, {ID: "x.corrupt-1"},
		{ID: "a", Ingress: 1000, Egress: 1_000_000_000_000_000},
		{ID: "a", Ports: []Port{{Protocol: "sctp", HostPort: 65535, ContainerPort: 1}, {Protocol: "?"}}}, // without a host port
	} {
		if _, _, err := normal(a); err != nil {
			t.Errorf("%s: %v", a.ID, err)
		}
	}
}

func make4097() (out []Port) {
	for range 4097 {
		out = append(out, Port{Protocol: "tcp", HostPort: 1, ContainerPort: 1})
	}
	return out
}

func TestConfigsThatAreRefused(t *testing.T) {
	_, err := New(Config{StateDir: "state", NetnsDir: "netns", Prefix: "Nw/", SetUpTimeout: -1, BootID: "b"})
	for _, words := range []string{
		`Config.Plugins is empty`, `Config.StateDir is "state"; want an absolute path`, `Config.NetnsDir is "netns"`,
		`Config.Prefix is "Nw/"`, `Config.SetUpTimeout is -1ns`,
	} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %s", err, words)
		}
	}
}
