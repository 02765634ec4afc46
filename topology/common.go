package topology

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// The search for the best set of nodes that hints have in common, if not all of them are
// preferred. The kubelet tries every combination of one hint each. This search drops sets that
// can no longer lead to the best one.

// search finds the best common set of nodes: it takes one set from each list, in every combination,
// and compares the nodes that the sets of a combination have in common. Lists are sorted by number
// and have no duplicates. A search serves one call and one goroutine.
type search struct {
	best
	all   numa.NodeSet
	lists [][]numa.NodeSet
	tops  [][]numa.NodeSet // for each list, its sets that no other of its sets contains
	steps int              // steps left
}

// common returns the best set, or 0 if no combination has a node in common.
//
// It first offers the sets that need no search: members of one list that have a superset in each
// other list. Nearly always one of these is the best, and often it is certain that none can be
// better. Otherwise it searches.
func common(all numa.NodeSet, lists [][]numa.NodeSet, o order, needed int) numa.NodeSet {
	reach := all // the result is a subset of it
	for _, l := range lists {
		var union numa.NodeSet
		for _, s := range l {
			union |= s
		}
		reach &= union
	}
	// A list that contains only the whole machine restricts nothing.
	lists = slices.DeleteFunc(lists, func(l []numa.NodeSet) bool { return len(l) == 1 && l[0] == all })
	switch {
	case reach == 0:
		return 0
	case len(lists) == 0:
		return all
	}
	// With short lists first, fewer sets are reached early, so more of the others can be dropped.
	slices.SortFunc(lists, func(a, b []numa.NodeSet) int { return len(a) - len(b) })
	s := search{best: best{order: o, needed: needed}, all: all, lists: lists}
	s.members()
	// The cheaper of the two searches depends on the lists; the cost of the table depends on the
	// number of nodes only.
	switch n := all.Len(); {
	case !s.belowPart(reach):
	case n > maxDense:
		s.sparse(maxSteps)
	case s.pairs() > len(lists)*n<<n:
		s.dense()
	default:
		s.sparse(unlimited)
	}
	return s.nodes
}

// members compares, with the best set so far, the members of each list that have supersets in all
// other lists.
func (s *search) members() {
	s.steps = maxSteps
	// Only the widest sets of a list are needed to find a superset.
	for _, l := range s.lists {
		s.tops = append(s.tops, s.widest(l))
	}
	for _, l := range s.lists {
		for _, nodes := range l {
			if s.below(nodes) && s.completes(nodes, 0) {
				s.take(nodes)
			}
		}
	}
}

// widest returns the sets that no other set of the list contains. A superset is the larger
// number, so the loop runs from the end.
func (s *search) widest(sorted []numa.NodeSet) []numa.NodeSet {
	var top []numa.NodeSet
	for _, nodes := range slices.Backward(sorted) {
		if s.steps < 0 {
			break
		}
		if !s.within(nodes, top) {
			top = append(top, nodes)
		}
	}
	return top
}

// completes reports whether each list, beginning with the list at index first, has a set that
// contains all of nodes.
func (s *search) completes(nodes numa.NodeSet, first int) bool {
	for _, top := range s.tops[first:] {
		if !s.within(nodes, top) {
			return false
		}
	}
	return true
}

// within reports whether one of the sets contains nodes. It returns false once no steps are left.
func (s *search) within(nodes numa.NodeSet, sets []numa.NodeSet) bool {
	if s.steps < 0 {
		return false
	}
	i := slices.IndexFunc(sets, nodes.SubsetOf)
	if i < 0 {
		s.steps -= len(sets)
		return false
	}
	s.steps -= i + 1
	return true
}
