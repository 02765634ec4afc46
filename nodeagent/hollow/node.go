package hollow

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
	"github.com/nodewright/nodewright/probe/check"
)

// Node is a node without a machine. Its methods may be called from any goroutine.
type Node struct {
	*nodeagent.Node
	// Runtime is the container runtime, with its faults.
	Runtime *critest.Runtime
}

// New returns a Node, which Run starts. ctx limits only New. The node's directory
// is locked until the end of Run, or Close.
func New(ctx context.Context, cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("hollow: %w", err)
	}
	conf, err := cfg.configuration()
	if err != nil {
		return nil, fmt.Errorf("hollow: %w", err)
	}
	rt := newRuntime(cfg)
	o := nodeagent.Options{
		Config: conf, Runtime: rt, Images: rt, Hardware: cfg.hardware(), Join: cluster.Join,
		Agent: func(c *agent.Config) {
			v := volumes{c.Paths.Root}
			c.Volumes.Manager, c.Volumes.SubPaths = v, v
			c.Probes.Network, c.Probes.HTTPHook = healthy, answered
		},
		Parts: parts(cfg, rt), Log: cfg.Log, Metrics: cfg.Metrics,
		Settings: nodeagent.Settings{LeaveHost: true},
	}
	if cfg.Transport != nil {
		o.Join = cluster.Through(cfg.Transport)
	}
	if len(cfg.Devices) > 0 {
		o.Parts = append(o.Parts, nil)
		copy(o.Parts[1:], o.Parts)
		d := newDevices(cfg)
		o.Parts[0], o.Services = d.part, append(o.Services, d.serve)
	}
	n, err := nodeagent.New(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("hollow: %s: %w", cfg.Name, err)
	}
	return &Node{Node: n, Runtime: rt}, nil
}

// healthy answers every probe that would connect to a pod with success, since the pod's address
// does not exist, or belongs to another machine.
func healthy(context.Context, *v1.Probe) (check.Outcome, string, error) {
	return check.Success, "", nil
}

// answered answers every HTTP lifecycle hook with success.
func answered(context.Context, *v1.HTTPGetAction) error { return nil }

// parts returns the parts that work without a machine.
func parts(cfg Config, rt *critest.Runtime) []nodeagent.Maker {
	return []nodeagent.Maker{
		nodeagent.PodStarts, figuresOf(cfg, rt), collection, nodeagent.Eviction, nodeagent.Preemption, nodeagent.StartOrder,
		nodeagent.Placement, nodeagent.Resize, nodeagent.Tokens, nodeagent.Mirrors, nodeagent.Swap,
	}
}
