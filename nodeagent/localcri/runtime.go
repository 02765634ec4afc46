package localcri

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/nodeagent"
)

// Runtime returns a maker of runtimes for nodes. RootDir, CgroupDriver, Cluster, Log, Metrics and
// Projects of cfg are set from the node. The subnets of the bridge come from podCIDR, unless cfg
// names one. The node's own ports are never host ports. ImageReserve is the node's hard eviction
// thresholds, unless cfg has one.
func Runtime(cfg localcri.InProcessConfig) nodeagent.LocalMaker {
	return func(ctx context.Context, b *nodeagent.Builder) (*nodeagent.LocalRuntime, error) {
		cfg.RootDir, cfg.CgroupDriver, cfg.Cluster = Dir(b.Config.RootDir), b.Config.CgroupDriver, b.Config.Kubeconfig != ""
		cfg.Log, cfg.Metrics, cfg.Projects = b.Log, b.Metrics, b.Config.ProjectQuotas()
		var err error
		if cfg.Bridge, err = bridgeOf(cfg.Bridge, b.Config); err != nil {
			return nil, err
		}
		if cfg.ImageReserve == nil {
			list, err := b.Config.Thresholds()
			if err != nil {
				return nil, err
			}
			cfg.ImageReserve = reserve(list)
		}
		r, err := localcri.NewInProcess(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return &nodeagent.LocalRuntime{Runtime: r.Runtime(), Images: r.Images(), Run: r.Run, Network: r.Network(), Advice: r.Advice, Import: r.Import, Offered: r.Offered}, nil
	}
}

// podCIDR is the name of the setting of the pods' subnets in errors; it is a field and a flag.
const podCIDR = "podCIDR (--pod-cidr)"

// bridgeOf completes the configuration of the bridge from the node's.
func bridgeOf(cfg bridge.Config, c *kubeletconfig.Config) (bridge.Config, error) {
	cfg.Reserved = slices.Concat(cfg.Reserved, nodeagent.OwnPorts(c))
	if c.PodCIDR == "" || cfg.Subnet.IsValid() || cfg.Subnet6.IsValid() {
		return cfg, nil
	}
	cfg.SubnetsOf = podCIDR
	bad := func(text string) (bridge.Config, error) {
		return bridge.Config{}, fmt.Errorf("%s %q: %q: want an IPv4 subnet such as 10.214.0.0/24, and after a comma an IPv6 one if pods should have both", podCIDR, c.PodCIDR, text)
	}
	for i, text := range strings.Split(c.PodCIDR, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		switch {
		case err != nil || i > 1 || p.Addr().Is4() != (i == 0) || p != p.Masked():
			return bad(text)
		case i == 0:
			cfg.Subnet = p
		default:
			cfg.Subnet6 = p
		}
	}
	return cfg, nil
}

// reserve returns the hard eviction thresholds: an image that took more of the disk would cause
// evictions.
func reserve(list []rank.Threshold) func(bytes, inodes int64) (int64, int64) {
	return func(bytes, inodes int64) (left, leftInodes int64) {
		for _, t := range list {
			switch {
			case !t.Hard():
			case t.Signal == rank.SignalNodeFs || t.Signal == rank.SignalImageFs:
				left = max(left, t.Value.Of(bytes))
			case t.Signal == rank.SignalNodeFsInodes || t.Signal == rank.SignalImageFsInodes:
				leftInodes = max(leftInodes, t.Value.Of(inodes))
			}
		}
		return left, leftInodes
	}
}
