package topology

import (
	"math/bits"

	"github.com/nodewright/nodewright/numa"
)

// maxDense is the number of nodes up to which a table of all sets is small:
// 65,536 entries of 4 bytes.
const maxDense = 16

// dense finds all sets in common on machines with few nodes, by counting: how
// many choices have T or more in common is the product of how many members of
// each list contain T. Two sums over all supersets and their inverse (zeta and
// Möbius transform) take n·2ⁿ steps for n nodes, however long the lists are.
func (s *search) dense() {
	nodes := s.all.IDs()
	table := func() []uint32 { return make([]uint32, 1<<len(nodes)) }
	reached, more := table(), table()
	count(reached, s.lists[0], s.all)
	for _, l := range s.lists[1:] {
		clear(more)
		count(more, l, s.all)
		supersets(reached)
		supersets(more)
		for i := range reached {
			reached[i] *= more[i] // no list has the empty set, so below 2¹⁶ each
		}
		exactly(reached)
		for i, n := range reached {
			reached[i] = min(n, 1)
		}
		reached[0] = 0
	}
	for i, n := range reached {
		if n > 0 {
			s.offer(spread(uint64(i), nodes))
		}
	}
}

func count(table []uint32, list []numa.NodeSet, all numa.NodeSet) {
	for _, s := range list {
		table[pack(s, all)] = 1
	}
}

// supersets turns values of sets into the sums over all their supersets.
func supersets(table []uint32) {
	for bit := 1; bit < len(table); bit <<= 1 {
		for i := range table {
			if i&bit == 0 {
				table[i] += table[i|bit]
			}
		}
	}
}

// exactly is the inverse of supersets.
func exactly(table []uint32) {
	for bit := 1; bit < len(table); bit <<= 1 {
		for i := range table {
			if i&bit == 0 {
				table[i] -= table[i|bit]
			}
		}
	}
}

// pack numbers the nodes of all from 0, in their order, and gives s in these
// numbers.
func pack(s, all numa.NodeSet) uint64 {
	var packed uint64
	for rest := uint64(s); rest != 0; rest &= rest - 1 {
		below := uint64(all) & (rest&-rest - 1)
		packed |= 1 << bits.OnesCount64(below)
	}
	return packed
}

// spread is the inverse of pack.
func spread(packed uint64, nodes []int) numa.NodeSet {
	var s numa.NodeSet
	for ; packed != 0; packed &= packed - 1 {
		s = s.With(nodes[bits.TrailingZeros64(packed)])
	}
	return s
}
