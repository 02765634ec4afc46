package nodeagent

import (
	"cmp"
	"context"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/internal/promshare"
)

// build makes all components, in the order of the package documentation. Each step may use the
// results of earlier steps, which are in the Builder. If build fails, New closes the components
// that were made.
func (n *Node) build(ctx context.Context) error {
	if err := n.begin(ctx); err != nil {
		return err
	}
	b, err := n.builder, error(nil)
	if err := b.join(n.options.Join); err != nil {
		return err
	}
	// After join, which may have replaced the runtime.
	if b.cgroups, err = b.podCgroups(ctx, b.Runtime); err != nil {
		return err
	}
	parts, err := b.make(n.options.Parts)
	if err != nil {
		return err
	}
	// Services come last, as they may call the agent at once.
	if err := n.agent(parts); err != nil {
		return err
	}
	return n.serve()
}

// begin reads the machine and connects to the runtime. Parts of the machine that
// cannot be read are only logged: a node with incomplete data still runs pods.
func (n *Node) begin(ctx context.Context) (err error) {
	o := &n.options
	b := &Builder{
		Config: o.Config, Settings: o.Settings, Runtime: o.Runtime, Images: o.Images, Hardware: o.Hardware, Machine: o.Machine, Facts: newFacts(), Log: o.Log,
	}
	// The version comes first: the check is cheap, and an error is a mistake of the program's
	// author.
	if b.Version, err = VersionInfo(cmp.Or(o.KubernetesVersion, KubernetesVersion())); err != nil {
		return err
	}
	if o.Metrics != nil {
		// A separate step: a nil *Registry in the interface would not be nil.
		b.Metrics = o.Metrics
		if err := promshare.Register(o.Metrics, buildInfo(b.Version), gateMetrics(b.Config), hangingReads()); err != nil {
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
	// The endpoint identifies the runtime's process, and the process its cgroup.
	b.host = newHostCgroups(b.Config, endpoint)
	if b.Node, err = b.node(); err != nil {
		b.Log.Warn("failed to read some facts of the machine", zap.Error(err))
	}
	return nil
}

// join creates the clients of the cluster's API server, if the node has a cluster. Cluster.Run
// maintains the connection.
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

// agent makes the agent from the parts, and connects Facts to it.
func (n *Node) agent(parts []part.Part) error {
	cfg, err := n.builder.agent(parts, n.options.Sources)
	if err != nil {
		return err
	}
	cfg.Lock = n.lock
	cfg.Volumes.Plugins = n.builder.Facts.VolumePlugins
	// Options.Agent comes last, so that the embedder can override every default and every part.
	if n.options.Agent != nil {
		n.options.Agent(&cfg)
	}
	if n.Agent, err = agent.New(cfg); err != nil {
		return err
	}
	f := n.builder.Facts
	f.Healthy, f.Resources = n.Healthy, n.Resources
	f.VolumesInUse = func() ([]v1.UniqueVolumeName, bool) {
		// Volumes that a controller has attached count before a pod has mounted
		// them: they must not be detached meanwhile.
		select {
		case <-n.Settled():
			return f.Attached(), true
		default:
			return f.Attached(), false
		}
	}
	return nil
}
