package topology

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Policy decides, from the hints of all resources for one request, on which nodes the request is
// placed and whether it is admitted. It must neither keep nor modify the hints. It may be called
// concurrently.
type Policy interface {
	// Merge returns the hint that providers allocate by, and whether the request is admitted.
	// Hints are in the order of the providers.
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

// NewPolicy returns a built-in policy by its name. The policy none ignores the
// options.
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

// None admits everything, without a hint. A [Manager] with it does not call Provider.Hints.
type None struct{}

// Merge implements [Policy].
func (None) Merge([]numa.Hints) (numa.Hint, bool) { return numa.Hint{}, true }

// bestEffort admits every merged hint.
type bestEffort struct{ merger *merger }

// Merge implements [Policy].
func (p bestEffort) Merge(hints []numa.Hints) (numa.Hint, bool) {
	return p.merger.Merge(hints), true
}

// restricted admits only preferred hints.
type restricted struct{ merger *merger }

// Merge implements [Policy].
func (p restricted) Merge(hints []numa.Hints) (numa.Hint, bool) {
	h := p.merger.Merge(hints)
	return h, h.Preferred
}

// singleNode admits only preferred hints for one node. If the machine has only one node, it
// admits any hint.
type singleNode struct{ merger *merger }

// Merge implements [Policy]. It drops hints of several nodes before merging: a combination of
// such hints may have one node in common, but would not be preferred.
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
	// All nodes means any nodes. The kubelet returns this if no resource has a preference, and on
	// machines with one node.
	if h.Nodes == p.merger.all {
		h.Nodes = 0
	}
	return h, h.Preferred
}
