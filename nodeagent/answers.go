package nodeagent

import (
	"context"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/local"
)

// Answers to requests of package agent/local that the agent alone cannot answer.

var (
	_ local.Agent         = (*Node)(nil)
	_ local.Fitter        = (*Node)(nil)
	_ local.NodeExplainer = (*Node)(nil)
	_ local.Imager        = (*Node)(nil)
	_ local.Measurer      = (*Node)(nil)
	_ local.Historian     = (*Node)(nil)
)

// WhyNode returns how far the node is from its eviction thresholds, and what the agent does about
// thresholds that are crossed. Parts that implement part.NodeExplainer add their information. It
// reads only memory.
func (n *Node) WhyNode() local.NodeWhy {
	why := n.Agent.WhyNode()
	why.Runtime, why.ShuttingDown = n.endpoint, n.builder.Facts.ShuttingDown() != nil
	if why.Conditions == nil {
		why.Conditions = n.builder.Facts.Pressure()
	}
	if n.local != nil {
		why.Network = n.local.Network
		if n.local.Advice != nil {
			why.Advice = n.local.Advice()
		}
	}
	return why
}

// Images returns the images on the node, and what garbage collection would do with
// each. On a node without a part for images, the error is errors.ErrUnsupported.
func (n *Node) Images(ctx context.Context) (local.Images, error) {
	return n.builder.Facts.ListImages(ctx)
}

// Summary returns the usage of the node and its pods; see pressure.Stats. Without a
// part that measures, the error is errors.ErrUnsupported.
func (n *Node) Summary(ctx context.Context) (*statsapi.Summary, error) {
	if u := n.builder.Facts.Usage; u != nil {
		return u.Summary(ctx)
	}
	return nil, errNoUsage()
}

// CPUAndMemory returns a Summary without file systems, networks and volumes. Errors
// are as in Summary.
func (n *Node) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	if u := n.builder.Facts.Usage; u != nil {
		return u.CPUAndMemory(ctx)
	}
	return nil, errNoUsage()
}

// totals measures what the history has.
func (n *Node) totals(ctx context.Context) (*statsapi.Summary, error) {
	if u := n.builder.Facts.Usage; u != nil {
		return u.Totals(ctx)
	}
	return nil, errNoUsage()
}

// History returns the usage of the node and its pods in the last hour. It is measured while
// [LocalSocket] is served.
func (n *Node) History() local.Usage { return n.history.Usage() }

// errNoUsage returns the error of a node without a part that measures.
func errNoUsage() error { return unsupported("this agent has no usage statistics") }
