package topology

import (
	"math"
	"math/bits"

	"github.com/nodewright/nodewright/numa"
)

// The search by counting, for machines of up to maxDense nodes. It is exact, and its time hardly
// depends on the length of the lists.

// maxDense is the number of nodes up to which a table of all sets is small:
// 65,536 entries of 8 bytes.
const maxDense = 16

// dense finds the common sets of all combinations by counting. A combination is one set from each
// list. The number of combinations whose sets all contain the set T is a product: for each list,
// the number of its sets that contain T. The sums over supersets and their inverse (zeta and
// Möbius transform) take n·2ⁿ steps for n nodes, however long the lists are.
func (s *search) dense() {
	// IDs may have gaps, so the table has an entry for each set of nodes, not of IDs.
	nodes := s.all.IDs()
	table := func() []uint64 { return make([]uint64, 1<<len(nodes)) }
	choices, more := table(), table()
	count(choices, s.lists[0], s.all)
	supersets(choices)
	most := uint64(len(s.lists[0])) // the largest possible count
	for _, l := range s.lists[1:] {
		// The next product could overflow, and a count that wraps to 0 would lose a set.
		// Reduce each count to 0 or 1: only these two cases matter in the end.
		if most > math.MaxUint64/uint64(len(l)) {
			exactly(choices)
			most = 0
			for i, n := range choices {
				choices[i] = min(n, 1)
				most += choices[i]
			}
			supersets(choices)
		}
		clear(more)
		count(more, l, s.all)
		supersets(more)
		for i := range choices {
			choices[i] *= more[i]
		}
		most *= uint64(len(l))
	}
	exactly(choices)
	for i, n := range choices {
		// Set 0 stands for combinations without a common node.
		if n > 0 && i > 0 {
			s.offer(spread(uint64(i), nodes))
		}
	}
}

// count sets the table's entries for a list's members to 1.
func count(table []uint64, list []numa.NodeSet, all numa.NodeSet) {
	for _, s := range list {
		table[pack(s, all)] = 1
	}
}

// supersets replaces each entry by the sum over all its supersets. Each pass handles one node: it
// adds the entries with the node's bit to those without.
func supersets(table []uint64) {
	for bit := 1; bit < len(table); bit <<= 1 {
		for at := 0; at < len(table); at += 2 * bit {
			without, with := table[at:at+bit], table[at+bit:at+2*bit]
			for i, n := range with {
				without[i] += n
			}
		}
	}
}

// exactly is the inverse of supersets.
func exactly(table []uint64) {
	for bit := 1; bit < len(table); bit <<= 1 {
		for at := 0; at < len(table); at += 2 * bit {
			without, with := table[at:at+bit], table[at+bit:at+2*bit]
			for i, n := range with {
				without[i] -= n
			}
		}
	}
}

// pack numbers the nodes of the set all from 0, in ascending order, and returns the set s in these
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
		s |= 1 << nodes[bits.TrailingZeros64(packed)]
	}
	return s
}
