package topology

import (
	"math"
	"math/bits"

	"github.com/nodewright/nodewright/numa"
)

// order decides which of two sets of nodes is better.
type order struct {
	// distance has the distances between nodes, by their IDs. It is nil if the option
	// prefer-closest-numa-nodes is off.
	distance *[numa.MaxNodes][numa.MaxNodes]int
	// self is the shortest distance of a node to itself, and other the shortest between two
	// nodes.
	self, other int
}

// newOrder returns the order for a machine. If closest is true, each node of the machine must
// have distances to all nodes.
func newOrder(m numa.Machine, closest bool) order {
	if !closest {
		return order{}
	}
	o := order{distance: new([numa.MaxNodes][numa.MaxNodes]int), self: math.MaxInt32, other: math.MaxInt32}
	for _, from := range m.Nodes {
		for i, to := range m.Nodes {
			d := from.Distances[i]
			o.distance[from.ID][to.ID] = d
			if from.ID == to.ID {
				o.self = min(o.self, d)
			} else {
				o.other = min(o.other, d)
			}
		}
	}
	return o
}

// narrower reports whether a is strictly better than b where fewer nodes are better. a is better if
// it has fewer nodes. If both have equally many, a is better if its distance is smaller. If that is
// equal too, a is better if it is the smaller number.
func (o order) narrower(a, b numa.NodeSet) bool {
	if o.distance == nil || a.Len() != b.Len() {
		return a.Narrower(b)
	}
	if da, db := o.total(a), o.total(b); da != db {
		return da < db
	}
	return a < b
}

// total returns the sum of the distances of all ordered pairs of nodes in s, including the distance
// of each node to itself. It returns 0 if distances do not count. For sets of equal size it gives
// the same order as the average distance, without fractions.
func (o order) total(s numa.NodeSet) int {
	if o.distance == nil {
		return 0
	}
	sum := 0
	for from := s; from != 0; from &= from - 1 {
		row := &o.distance[bits.TrailingZeros64(uint64(from))]
		for to := s; to != 0; to &= to - 1 {
			sum += row[bits.TrailingZeros64(uint64(to))]
		}
	}
	return sum
}

// best is the best set offered so far, among sets that not all resources prefer. A set with
// exactly the needed number of nodes is best. If none was offered, the largest set with fewer
// nodes is best. If there is none of these either, the smallest set with more nodes is best.
// Among sets of one size, narrower decides. The result does not depend on the order of the
// offers.
type best struct {
	order
	needed int
	nodes  numa.NodeSet // the best set; 0 if none was offered yet
	total  int          // total distance between nodes; see order.total
}

// offer stores s if it is better than the stored set. It ignores the empty set.
func (b *best) offer(s numa.NodeSet) {
	if b.below(s) {
		b.take(s)
	}
}

// take stores s as the best set.
func (b *best) take(s numa.NodeSet) {
	b.nodes, b.total = s, b.order.total(s)
}

// below reports whether s is better than the stored set.
func (b *best) below(s numa.NodeSet) bool {
	if s == 0 || b.nodes == 0 {
		return s != 0
	}
	if rs, rb := b.rank(s), b.rank(b.nodes); rs != rb {
		return rs < rb
	}
	if b.distance != nil {
		if total := b.order.total(s); total != b.total {
			return total < b.total
		}
	}
	return s < b.nodes
}

// rank returns the position of s in the order of sizes; smaller is better.
func (b *best) rank(s numa.NodeSet) int {
	if n := s.Len(); n > b.needed {
		return n
	}
	return b.needed - s.Len()
}

// belowPart reports whether a subset of s may be better than the stored set. If it returns false,
// no subset is better; if it returns true, there may still be none.
func (b *best) belowPart(s numa.NodeSet) bool {
	if s == 0 || b.nodes == 0 {
		return s != 0
	}
	// The size of the subset that would rank best: want nodes, or all of s if it has fewer.
	part := lowest(s, b.needed)
	if rp, rb := b.rank(part), b.rank(b.nodes); rp != rb {
		return rp < rb
	}
	if b.distance != nil {
		n := part.Len()
		// A lower bound: no subset of that size has a smaller total distance.
		if shortest := n*b.self + n*(n-1)*b.other; shortest != b.total {
			return shortest < b.total
		}
	}
	return part < b.nodes
}

// lowest returns the n smallest IDs of s. If s has fewer than n, it returns s.
func lowest(s numa.NodeSet, n int) numa.NodeSet {
	rest := s
	for ; n > 0 && rest != 0; n-- {
		rest &= rest - 1
	}
	return s &^ rest
}
