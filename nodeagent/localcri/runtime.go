package localcri

import (
	"context"

	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent"
)

// Runtime returns a maker of runtimes for nodes. RootDir, CgroupDriver, Cluster,
// Log and Metrics of cfg are set from the node.
func Runtime(cfg localcri.InProcessConfig) nodeagent.LocalMaker {
	return func(ctx context.Context, b *nodeagent.Builder) (*nodeagent.LocalRuntime, error) {
		cfg.RootDir, cfg.CgroupDriver, cfg.Cluster = Dir(b.Config.RootDir), b.Config.CgroupDriver, b.Config.Kubeconfig != ""
		cfg.Log, cfg.Metrics = b.Log, b.Metrics
		r, err := localcri.NewInProcess(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return &nodeagent.LocalRuntime{Runtime: r.Runtime(), Images: r.Images(), Run: r.Run, Network: r.Network(), Import: r.Import}, nil
	}
}
