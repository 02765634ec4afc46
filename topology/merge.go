package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// merger finds the one hint that serves several resources best. It is what the
// policies of this package are made of, and a policy of your own can start
// from it. It may be used from many goroutines.
type merger struct {
	all   numa.NodeSet
	order order
}

// newMerger makes a Merger for a machine. With closest, of sets with as many
// nodes the one with the smaller average distance is the better
// (prefer-closest-numa-nodes); the machine then has to tell its distances.
func newMerger(m numa.Machine, closest bool) (*merger, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("machine: %w", err)
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

// Merge takes one hint of each resource, in all ways, and joins each such
// choice to the nodes that its hints have in common. The join is preferred if
// all its hints are, and name the same nodes. The best join wins:
//
//   - a preferred one before others;
//   - among preferred ones the narrower (fewer nodes, then smaller average
//     distance if distances count, then the smaller number);
//   - among the others the one whose number of nodes is nearest to the number
//     needed without going beyond it, then the one nearest above it, and the
//     narrower of equals. Needed is what the most demanding resource takes at
//     the least.
//
// Choices with no node in common do not count. If that leaves none, the answer
// is all nodes, not preferred.
//
// This is the kubelet's answer. The kubelet goes through all choices; this
// takes a time that is polynomial in the number of hints. On machines of up to
// 16 nodes it is exact. On larger ones a search that has looked at some hundred
// thousand sets ends with the best it found, so that no hints can keep it busy
// for long: which nodes a hint names that is not preferred may then not be the
// best. Hints about [numa.Candidates] have not been seen to get there.
func (m *merger) Merge(hints []numa.Hints) numa.Hint {
	lists := make([][]numa.Hint, len(hints))
	for i, h := range hints {
		lists[i] = choices(h)
	}
	return m.merge(lists)
}

// choices spells out what it means to have no preference, and to have no hint.
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

// merge expects one list for each resource. A list without hints leaves nothing to
// choose. Lists are those of Merge, or what single-numa-node has left of them.
func (m *merger) merge(lists [][]numa.Hint) numa.Hint {
	if slices.ContainsFunc(lists, func(l []numa.Hint) bool { return len(l) == 0 }) {
		return numa.Hint{Nodes: m.all}
	}
	// Preferred first: the search for others is the expensive part, and needed only
	// without it.
	if best := m.preferred(lists); best != 0 {
		return numa.Hint{Nodes: best, Preferred: true}
	}
	if best := m.other(lists); best != 0 {
		return numa.Hint{Nodes: best}
	}
	return numa.Hint{Nodes: m.all}
}

// preferred is the best set that all resources prefer, or 0. Resources that
// prefer any set agree to each.
func (m *merger) preferred(lists [][]numa.Hint) numa.NodeSet {
	var picky [][]numa.NodeSet // sorted; of those who do not prefer any
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
		// What it names besides is a candidate only if all others have no opinion.
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
	// A common set is in every list, so that the shortest one has all candidates.
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

// inAll reports whether every list has s.
func inAll(sorted [][]numa.NodeSet, s numa.NodeSet) bool {
	for _, sets := range sorted {
		if _, ok := slices.BinarySearch(sets, s); !ok {
			return false
		}
	}
	return true
}

// other is the best set of nodes that some choice has in common, or 0,
// whatever is preferred.
func (m *merger) other(lists [][]numa.Hint) numa.NodeSet {
	want := 0
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
			// Counted before the machine's nodes are applied, as the kubelet does.
			if n := nodes.Len(); least == 0 || n < least {
				least = n
			}
			if nodes &= m.all; nodes != 0 {
				own = append(own, nodes)
			}
		}
		want = max(want, least)
		slices.Sort(own)
		sets = append(sets, slices.Compact(own))
	}
	return common(m.all, sets, m.order, want)
}
