package localcri

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/network/bridge"
)

func TestBridgeOfTheConfiguration(t *testing.T) {
	own := bridge.Config{Subnet: netip.MustParsePrefix("10.9.0.0/24"), Reserved: []uint16{6443}}
	for _, c := range []struct {
		cfg     bridge.Config
		podCIDR string
		v4, v6  string
		want    string // in the error
	}{
		{podCIDR: "", v4: "invalid Prefix", v6: "invalid Prefix"},
		{podCIDR: "10.1.0.0/16", v4: "10.1.0.0/16", v6: "invalid Prefix"},
		{podCIDR: "10.1.0.0/16,fd00::/64", v4: "10.1.0.0/16", v6: "fd00::/64"},
		{podCIDR: "10.1.0.0/16, fd00::/64", v4: "10.1.0.0/16", v6: "fd00::/64"},
		{cfg: own, podCIDR: "10.1.0.0/16", v4: "10.9.0.0/24", v6: "invalid Prefix"},
		{podCIDR: "10.1.0.1/16", want: `podCIDR (--pod-cidr) "10.1.0.1/16": "10.1.0.1/16": want an IPv4 subnet`},
		{podCIDR: "fd00::/64", want: `"fd00::/64": want an IPv4 subnet`},
		{podCIDR: "10.1.0.0/16,10.2.0.0/16", want: `"10.2.0.0/16": want`},
		{podCIDR: "10.1.0.0/16,fd00::/64,fd01::/64", want: `"fd01::/64": want`},
		{podCIDR: "x", want: `"x": want`},
	} {
		conf, _, err := kubeletconfig.Load(kubeletconfig.Options{})
		if err != nil {
			t.Fatal(err)
		}
		conf.PodCIDR, conf.ReadOnlyPort = c.podCIDR, 10255
		got, err := bridgeOf(c.cfg, conf)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: error %v, want %q", c.podCIDR, err, c.want)
			}
			continue
		}
		if err != nil || got.Subnet.String() != c.v4 || got.Subnet6.String() != c.v6 {
			t.Errorf("%q: %v and %v, %v; want %s and %s", c.podCIDR, got.Subnet, got.Subnet6, err, c.v4, c.v6)
		}
		if want := append(slices.Clone(c.cfg.Reserved), 10250, 10255, 10248); !slices.Equal(got.Reserved, want) {
			t.Errorf("reserved %v, want %v", got.Reserved, want)
		}
	}
}
