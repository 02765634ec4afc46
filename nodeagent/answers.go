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
// those that it met. Parts that are a part.NodeExplainer add what they know. It answers from
// memory.
func (n *Node) WhyNode() local.NodeWhy {
	why := n.Agent.WhyNode()
	why.Runtime, why.ShuttingDown = n.endpoint, n.builder.Facts.ShuttingDown() != nil
	if why.Conditions == nil {
		why.Conditions = n.builder.Facts.Pressure()
	}
	if n.local != nil {
		why.Network = n.local.Network
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
