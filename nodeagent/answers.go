package nodeagent

import (
	"context"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

// What package agent/local answers to a person at the machine, beyond what the
// agent itself knows.

var (
	_ local.Agent         = (*Node)(nil)
	_ local.Fitter        = (*Node)(nil)
	_ local.NodeExplainer = (*Node)(nil)
	_ local.Imager        = (*Node)(nil)
	_ local.Measurer      = (*Node)(nil)
)

// WhyNode returns how far the node is from its thresholds, and what was done about
// those that it met. Each part adds its own share, in the order of the parts. It
// answers from memory.
func (n *Node) WhyNode() local.NodeWhy {
	f := n.builder.Facts
	why := local.NodeWhy{
		Name: n.builder.Node.Name, Conditions: f.Pressure(), Events: n.NodeEvents(), ShuttingDown: f.ShuttingDown() != nil, Parts: n.Parts(),
	}
	why.Runtime = n.endpoint
	if n.local != nil {
		why.Network = n.local.Network
	}
	for _, add := range f.Why {
		add(&why)
	}
	return why
}

// Images returns which images there are, and what would become of them. The error is
// an errors.ErrUnsupported if no part knows.
func (n *Node) Images(ctx context.Context) (local.Images, error) {
	return n.builder.Facts.ListImages(ctx)
}

// Summary is what the node and its pods use; see pressure.Stats. The error is an
// errors.ErrUnsupported if no part knows.
func (n *Node) Summary(ctx context.Context) (*statsapi.Summary, error) {
	if u := n.builder.Facts.Usage; u != nil {
		return u.Summary(ctx)
	}
	return nil, errNoUsage()
}

// CPUAndMemory is a Summary without file systems, networks and volumes. Errors are
// as in Summary.
func (n *Node) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	if u := n.builder.Facts.Usage; u != nil {
		return u.CPUAndMemory(ctx)
	}
	return nil, errNoUsage()
}

// errNoUsage returns the error of a node without a part that measures.
func errNoUsage() error { return unsupported("this agent does not tell what the node uses") }
