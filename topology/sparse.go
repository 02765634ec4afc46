package topology

import (
	"math"
	"math/bits"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// The search by lists, for machines with many nodes or lists of few hints. The number of steps is
// limited; at the limit it returns the best set found so far.

// A step is one union or comparison of two sets and takes some nanoseconds. On machines with more
// nodes than dense can handle, a search ends after maxSteps.
const (
	maxSteps    = 1 << 18
	unlimited   = math.MaxInt
	stepsToKeep = 16 // the cost of storing a new set
)

// pairs returns an upper bound of the unions that sparse computes. It includes the sets that
// promising would drop, so sparse is chosen only if it is certainly faster than dense.
func (s *search) pairs() int {
	reached, pairs := 1, 0
	for _, l := range s.lists {
		reached *= len(l)
		pairs += reached
		reached = min(reached, 1<<s.all.Len())
	}
	return pairs
}

// sparse goes from list to list with the distinct sets reached so far. It drops sets without a
// subset that is better than the best one. Each list gets an equal share of the steps.
func (s *search) sparse(steps int) {
	reached := []numa.NodeSet{s.all}
	for i, l := range s.lists {
		s.steps = steps / len(s.lists)
		l = s.promising(slices.Clone(l))
		next := newSets(len(reached) + len(l))
		for _, r := range reached {
			if s.steps < 0 || !s.belowPart(r) {
				continue
			}
			s.steps -= len(l)
			for _, m := range l {
				nodes := r & m
				if nodes == 0 || !next.add(nodes) {
					continue
				}
				s.steps -= stepsToKeep
				if s.below(nodes) && s.completes(nodes, i+1) {
					s.take(nodes)
				}
			}
		}
		reached = s.promising(next.list())
	}
}

// promising returns the sets that have a subset that may be better than the best one.
func (s *search) promising(sets []numa.NodeSet) []numa.NodeSet {
	return slices.DeleteFunc(sets, func(n numa.NodeSet) bool { return !s.belowPart(n) })
}

// sets is a set of non-empty node sets, stored in a hash table with open addressing.
type sets struct {
	slots []numa.NodeSet // the length is a power of two; 0 marks a free slot
	used  int
}

// newSets returns an empty table that is at most half full with size sets.
func newSets(size int) *sets {
	return &sets{slots: make([]numa.NodeSet, 1<<bits.Len(uint(2*size)))}
}

// add inserts s and reports whether it was new.
func (t *sets) add(s numa.NodeSet) bool {
	if 2*t.used >= len(t.slots) {
		old := t.slots
		*t = sets{slots: make([]numa.NodeSet, 2*len(old))}
		for _, o := range old {
			if o != 0 {
				t.add(o)
			}
		}
	}
	// The multiplication spreads the sets over the slots, since their numbers are not random.
	mask := uint64(len(t.slots) - 1)
	at := uint64(s) * 0x9e3779b97f4a7c15 >> bits.LeadingZeros64(mask) // 2⁶⁴ divided by the golden ratio (Knuth, TAOCP 6.4)
	for ; ; at = (at + 1) & mask {
		switch t.slots[at] {
		case s:
			return false
		case 0:
			t.slots[at] = s
			t.used++
			return true
		}
	}
}

// list returns the sets in ascending order. t must not be used afterwards.
func (t *sets) list() []numa.NodeSet {
	l := slices.DeleteFunc(t.slots, func(s numa.NodeSet) bool { return s == 0 })
	slices.Sort(l)
	return l
}
