package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// merger finds the hint that serves several resources best. The policies of this package use it.
// It is safe for concurrent use.
type merger struct {
	all   numa.NodeSet
	order order
}

// newMerger returns a merger for a machine. If closest is true, the set with the smaller average
// distance wins among sets of equal size (prefer-closest-numa-nodes), and the machine must have
// distances.
func newMerger(m numa.Machine, closest bool) (*merger, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("invalid machine: %w", err)
	}
	if closest {
		var errs []error
		for _, n := range m.Nodes {
			if n.Distances == nil {
				errs = append(errs, fmt.Errorf("node %d has no distances; %s needs them", n.ID, PreferClosest))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
	}
	return &merger{all: m.AllNodes(), order: newOrder(m, closest)}, nil
}

// Merge tries every combination of one hint of each resource, and computes the nodes that the
// hints of a combination have in common. The common set is preferred if all the hints are
// preferred and have the same nodes. The best set wins:
//
//   - a preferred set before others;
//   - among preferred sets, the narrower one: fewer nodes, then the smaller average distance if
//     distances count, then the smaller number;
//   - among the others, the one whose number of nodes is closest to the needed number without
//     exceeding it, then the closest above it, and the narrower of equals. The needed number is
//     the largest of the resources' minimums.
//
// Combinations without a common node are ignored. If there are no others, the result is all
// nodes, not preferred.
//
// The result is the kubelet's. The kubelet tries all combinations; the time of Merge is
// polynomial in the number of hints. It is exact on machines of up to 16 nodes. On larger ones a
// search ends after some hundred thousand sets with the best set found. Then the nodes of a hint
// that is not preferred may not be the best. In tests with hints about [numa.Candidates], no
// search has reached this limit.
func (m *merger) Merge(hints []numa.Hints) numa.Hint {
	lists := make([][]numa.Hint, len(hints))
	for i, h := range hints {
		lists[i] = choices(h)
	}
	return m.merge(lists)
}

// choices returns the hints of a resource. A resource without a preference, or without hints,
// gets the hint that the kubelet uses for it.
func choices(h numa.Hints) []numa.Hint {
	switch {
	case h.Any:
		return []numa.Hint{{Preferred: true}}
	case len(h.List) == 0:
		return []numa.Hint{{}}
	default:
		return h.List
	}
}

// merge does the work of Merge, with one list of hints for each resource. If a list is empty,
// there is no combination. The policy single-numa-node calls merge with the hints for one node.
func (m *merger) merge(lists [][]numa.Hint) numa.Hint {
	if slices.ContainsFunc(lists, func(l []numa.Hint) bool { return len(l) == 0 }) {
		return numa.Hint{Nodes: m.all}
	}
	// Preferred sets first: the search for others is expensive, and only needed if
	// there is none.
	if best := m.preferred(lists); best != 0 {
		return numa.Hint{Nodes: best, Preferred: true}
	}
	if best := m.other(lists); best != 0 {
		return numa.Hint{Nodes: best}
	}
	return numa.Hint{Nodes: m.all}
}

// preferred returns the best set that all resources prefer, or 0. A resource without a
// preference accepts each set.
func (m *merger) preferred(lists [][]numa.Hint) numa.NodeSet {
	var picky [][]numa.NodeSet // sorted; from resources that have hints that are not preferred
	var named []numa.NodeSet
	for _, l := range lists {
		var sets []numa.NodeSet
		anything := false
		for _, h := range l {
			switch {
			case !h.Preferred:
			case h.Nodes == 0:
				anything = true
			default:
				sets = append(sets, h.Nodes)
			}
		}
		// Other sets of the resource are candidates only if all others have no
		// preference.
		if anything {
			named = append(named, sets...)
			continue
		}
		if len(sets) == 0 {
			return 0
		}
		slices.Sort(sets)
		picky = append(picky, sets)
	}
	// A common set is in every list, so the shortest list has all candidates.
	if len(picky) > 0 {
		named = slices.MinFunc(picky, func(a, b []numa.NodeSet) int { return len(a) - len(b) })
	} else {
		named = append(named, m.all)
	}
	var best numa.NodeSet
	for _, s := range named {
		if here := s & m.all; here != 0 && (best == 0 || m.order.narrower(here, best)) && inAll(picky, s) {
			best = here
		}
	}
	return best
}

// inAll reports whether every list contains s.
func inAll(sorted [][]numa.NodeSet, s numa.NodeSet) bool {
	for _, sets := range sorted {
		if _, ok := slices.BinarySearch(sets, s); !ok {
			return false
		}
	}
	return true
}

// other returns the best common set of any combination of hints, preferred or not. It returns 0
// if no combination has a common node.
func (m *merger) other(lists [][]numa.Hint) numa.NodeSet {
	needed := 0
	sets := make([][]numa.NodeSet, 0, len(lists))
	for _, l := range lists {
		least := 0
		own := make([]numa.NodeSet, 0, len(l))
		for _, h := range l {
			nodes := h.Nodes
			if nodes == 0 {
				own = append(own, m.all)
				continue
			}
			// Counted before nodes outside the machine are removed, as in the kubelet.
			if n := nodes.Len(); least == 0 || n < least {
				least = n
			}
			if nodes &= m.all; nodes != 0 {
				own = append(own, nodes)
			}
		}
		needed = max(needed, least)
		slices.Sort(own)
		sets = append(sets, slices.Compact(own))
	}
	return common(m.all, sets, m.order, needed)
}
