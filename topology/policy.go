package topology

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Policy decides, from what all resources say of one request, on which nodes
// it is placed, and whether that is good enough. It must not keep or change the
// hints, and may be asked from many goroutines.
type Policy interface {
	// Merge returns the hint that providers allocate by. Resources come in the
	// order of their providers.
	Merge(hints []numa.Hints) (hint numa.Hint, admit bool)
}

// The names of the built-in policies, as in the kubelet's configuration
// (topologyManagerPolicy).
const (
	NameNone           = "none"
	NameBestEffort     = "best-effort"
	NameRestricted     = "restricted"
	NameSingleNUMANode = "single-numa-node"
)

// NewPolicy makes a built-in policy by its name for a machine. Options do not
// matter to none.
func NewPolicy(name string, m numa.Machine, o Options) (Policy, error) {
	switch name {
	case NameNone:
		return None{}, nil
	case NameBestEffort, NameRestricted, NameSingleNUMANode:
	default:
		return nil, fmt.Errorf("policy %q is not known; want %s, %s, %s or %s",
			name, NameNone, NameBestEffort, NameRestricted, NameSingleNUMANode)
	}
	if err := o.check(m); err != nil {
		return nil, err
	}
	merger, err := newMerger(m, o.PreferClosest)
	if err != nil {
		return nil, err
	}
	switch name {
	case NameBestEffort:
		return bestEffort{merger}, nil
	case NameRestricted:
		return restricted{merger}, nil
	default:
		return singleNode{merger}, nil
	}
}

// None admits everything, and gives no hints. A [Manager] with it does not even
// ask for any.
type None struct{}

// Merge implements [Policy].
func (None) Merge([]numa.Hints) (numa.Hint, bool) { return numa.Hint{}, true }

// bestEffort takes what there is.
type bestEffort struct{ merger *merger }

// Merge implements [Policy].
func (p bestEffort) Merge(hints []numa.Hints) (numa.Hint, bool) {
	return p.merger.Merge(hints), true
}

// restricted wants what all resources prefer.
type restricted struct{ merger *merger }

// Merge implements [Policy].
func (p restricted) Merge(hints []numa.Hints) (numa.Hint, bool) {
	h := p.merger.Merge(hints)
	return h, h.Preferred
}

// singleNode wants all from one node. On a machine with only one, any will do.
type singleNode struct{ merger *merger }

// Merge implements [Policy]. Hints of several nodes are dropped before merging, as
// a join of them may be of one node, but is not preferred.
func (p singleNode) Merge(hints []numa.Hints) (numa.Hint, bool) {
	lists := make([][]numa.Hint, len(hints))
	for i, h := range hints {
		for _, c := range choices(h) {
			if c.Preferred && c.Nodes.Len() <= 1 {
				lists[i] = append(lists[i], c)
			}
		}
	}
	h := p.merger.merge(lists)
	// All nodes means any: this is how the kubelet answers when no resource has a
	// say, and on machines with one node.
	if h.Nodes == p.merger.all {
		h.Nodes = 0
	}
	return h, h.Preferred
}
