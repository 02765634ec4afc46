package topology

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// The search for the best common part of hints that are not all preferred. The
// kubelet tries every combination of one hint each; here only sets are followed
// that may still be the best.

// search finds the best set of nodes that one member of each list have in common.
// Lists are sorted by number and have no duplicates. A search is used for one call
// by one goroutine.
type search struct {
	best
	all   numa.NodeSet
	lists [][]numa.NodeSet
	tops  [][]numa.NodeSet // of each list, sets that are within no other
	steps int              // that may still be taken
}

// common returns the best set, or 0 if no choice has a node in common.
//
// It begins with the sets that need no search: members of one list that have a
// superset in each other list. One of these is nearly always the best, and
// often it is plain that nothing surpasses it. Otherwise it searches.
func common(all numa.NodeSet, lists [][]numa.NodeSet, o order, want int) numa.NodeSet {
	reach := all // the result lies within it
	for _, l := range lists {
		var union numa.NodeSet
		for _, s := range l {
			union |= s
		}
		reach &= union
	}
	// A list of nothing but the whole machine restricts no choice.
	lists = slices.DeleteFunc(lists, func(l []numa.NodeSet) bool { return len(l) == 1 && l[0] == all })
	switch {
	case reach == 0:
		return 0
	case len(lists) == 0:
		return all
	}
	// Short lists first: few sets are reached early, and more of the rest is cut
	// off.
	slices.SortFunc(lists, func(a, b []numa.NodeSet) int { return len(a) - len(b) })
	s := search{best: best{order: o, want: want}, all: all, lists: lists}
	s.members()
	// Which of the two searches is cheaper depends on the lists: the table's cost
	// on the number of nodes alone.
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

// members offers the members of lists that have supersets in all other lists.
func (s *search) members() {
	s.steps = maxSteps
	// The widest sets of a list are enough to find a superset.
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

// widest returns the sets that are not contained in another set of the list. Supersets are
// larger numbers, so the search starts at the end.
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

// completes reports whether the lists from index from on have choices that contain
// all of nodes.
func (s *search) completes(nodes numa.NodeSet, from int) bool {
	for _, top := range s.tops[from:] {
		if !s.within(nodes, top) {
			return false
		}
	}
	return true
}

// within reports whether one of some sets contains nodes. It returns false once the
// step limit is reached.
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
