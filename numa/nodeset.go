package numa

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// MaxNodes is the limit of NUMA node IDs: 0 to 63. The kubelet's masks have as many
// bits; Linux can be built for 1024.
const MaxNodes = 64

// NodeSet is a set of NUMA nodes: bit i stands for the node with ID i. The zero
// value is empty; sets are compared with ==.
type NodeSet uint64

// Nodes returns the set of some nodes. It panics if an ID is not within 0 and
// MaxNodes-1: check untrusted input first.
func Nodes(ids ...int) NodeSet {
	var s NodeSet
	for _, id := range ids {
		s = s.With(id)
	}
	return s
}

// With returns s with one more node. It panics like [Nodes].
func (s NodeSet) With(id int) NodeSet {
	if id < 0 || id >= MaxNodes {
		panic(fmt.Sprintf("numa: node %d; want 0 to %d", id, MaxNodes-1))
	}
	return s | 1<<id
}

// Has reports whether a node is in s.
func (s NodeSet) Has(id int) bool { return id >= 0 && id < MaxNodes && s>>id&1 == 1 }

// Len returns the number of nodes.
func (s NodeSet) Len() int { return bits.OnesCount64(uint64(s)) }

// SubsetOf reports whether all nodes of s are in t.
func (s NodeSet) SubsetOf(t NodeSet) bool { return s&^t == 0 }

// Narrower reports whether s is better than t where fewer nodes are better: s has fewer nodes than
// t, or equally many and a smaller value.
func (s NodeSet) Narrower(t NodeSet) bool {
	if a, b := s.Len(), t.Len(); a != b {
		return a < b
	}
	return s < t
}

// All iterates over the IDs of s in ascending order.
func (s NodeSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := uint64(s); rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros64(rest)) {
				return
			}
		}
	}
}

// IDs returns the IDs of s in ascending order.
func (s NodeSet) IDs() []int { return slices.Collect(s.All()) }

// String returns s in the kernel's list format (cpuset(7)), such as "0-1,4".
func (s NodeSet) String() string { return listFormat(s.All()) }
