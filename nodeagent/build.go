package nodeagent

import (
	"cmp"
	"context"
	"errors"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/promshare"
)

// build makes everything, in the order of the package's documentation.
func (n *Node) build(ctx context.Context) error {
	if err := n.begin(ctx); err != nil {
		return err
	}
	b, err := n.builder, error(nil)
	if err := b.join(n.options.Join); err != nil {
		return err
	}
	if b.cgroups, err = b.podCgroups(ctx, b.Runtime); err != nil {
		return err
	}
	parts, err := b.make(n.options.Parts)
	if err != nil {
		return err
	}
	if err := n.agent(parts); err != nil {
		return err
	}
	return n.serve()
}

// begin looks at the machine and the runtime.
func (n *Node) begin(ctx context.Context) (err error) {
	o := &n.options
	b := &Builder{
		Config: o.Config, Settings: o.Settings, Runtime: o.Runtime, Images: o.Images, Hardware: o.Hardware, Machine: o.Machine, Facts: newFacts(), Log: o.Log,
	}
	if b.Version, err = VersionInfo(cmp.Or(o.KubernetesVersion, KubernetesVersion())); err != nil {
		return err
	}
	if o.Metrics != nil {
		b.Metrics = o.Metrics
		if err := errors.Join(promshare.Register(o.Metrics, buildInfo(b.Version)), promshare.Register(o.Metrics, gateMetrics(b.Config))); err != nil {
			return err
		}
	}
	n.builder = b
	endpoint := ""
	if b.Runtime == nil {
		if endpoint, err = n.runtime(ctx); err != nil {
			return err
		}
	}
	b.host = newHostCgroups(b.Config, endpoint)
	if b.Node, err = b.node(); err != nil {
		b.Log.Warn("the machine could not be read in full", zap.Error(err))
	}
	return nil
}

// join connects to the cluster, if there is one.
func (b *Builder) join(join func(*Builder) (*Cluster, error)) error {
	if b.Config.Kubeconfig == "" {
		return nil
	}
	cl, err := join(b)
	if err != nil {
		return err
	}
	b.Cluster = cl
	if cl.Runtime != nil {
		b.Runtime = cl.Runtime
	}
	if cl.Images != nil {
		b.Images = cl.Images
	}
	return nil
}

// agent makes the agent of the parts, and lets others know what it knows.
func (n *Node) agent(parts []part.Part) error {
	cfg, err := n.builder.agent(parts, n.options.Sources)
	if err != nil {
		return err
	}
	cfg.Lock = n.lock
	cfg.Volumes.Plugins = n.builder.Facts.VolumePlugins
	if n.options.Agent != nil {
		n.options.Agent(&cfg)
	}
	if n.Agent, err = agent.New(cfg); err != nil {
		return err
	}
	f := n.builder.Facts
	f.Healthy, f.Resources = n.Healthy, n.Resources
	f.VolumesInUse = func() ([]v1.UniqueVolumeName, bool) {
		select {
		case <-n.Settled():
			return f.Attached(), true
		default:
			return f.Attached(), false
		}
	}
	return nil
}
