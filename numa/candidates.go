package numa

import (
	"cmp"
	"slices"
)

// maxAllSubsets is the number of nodes up to which every set of them is a
// candidate: the most that the kubelet allows by default
// (max-allowable-numa-nodes), with 255 sets.
const maxAllSubsets = 8

// Candidates are the sets of nodes that a resource manager looks at when it
// makes hints, in ascending order of size and lexicographic within a size. Each
// manager keeps those with enough of what it gives.
//
// A machine of up to 8 nodes has all sets, as in the kubelet. Larger ones would
// have too many, so four groups of nodes stand for them: those with CPUs, those
// with memory, those with either and those with both. A group of up to 8 nodes
// has all its sets; a larger one is brought into an order in which neighbours
// are near each other, and has the runs of that order: single nodes, neighbours,
// sockets, and so on up to the whole. Each single node and all nodes together
// come on top. With n nodes, that makes at most 2n(n+1) + n + 1 sets from runs,
// and 765 from small groups.
//
// What two candidates have in common is a candidate again, or nothing: this is what
// keeps the merging of hints cheap on large machines. The list is the caller's, and
// the same for equal machines.
func Candidates(m Machine) []NodeSet {
	all := m.AllNodes()
	var sets []NodeSet
	if all.Len() <= maxAllSubsets {
		sets = subsets(sets, all)
	} else {
		cpu, memory := m.withCPUs(), m.withMemory()
		order := m.byNearness()
		// CPU managers ask for nodes with CPUs, memory managers for those with
		// memory, and devices may be near either.
		for _, group := range []NodeSet{cpu, memory, cpu | memory, cpu & memory} {
			if group.Len() <= maxAllSubsets {
				sets = subsets(sets, group)
			} else {
				sets = runs(sets, order, group)
			}
		}
		for id := range all.All() {
			sets = append(sets, Nodes(id))
		}
		sets = append(sets, all)
	}
	// Groups overlap: equal sets become neighbours and go.
	slices.SortFunc(sets, bySize)
	return slices.Compact(sets)
}

// withCPUs returns the nodes that have a CPU online.
func (m Machine) withCPUs() NodeSet {
	var s NodeSet
	for _, c := range m.CPUs {
		s = s.With(c.Node)
	}
	return s
}

// withMemory returns the nodes that have memory of their own.
func (m Machine) withMemory() NodeSet {
	var s NodeSet
	for _, n := range m.Nodes {
		if n.Memory > 0 {
			s = s.With(n.ID)
		}
	}
	return s
}

// subsets appends every set that is not empty. Subtracting 1 within the bits of the
// set goes from one subset to the next, in descending order.
func subsets(to []NodeSet, of NodeSet) []NodeSet {
	for s := of; s != 0; s = (s - 1) & of {
		to = append(to, s)
	}
	return to
}

// runs appends every run of a group's nodes in an order. Two runs have a run in
// common, or nothing, as Candidates promises.
func runs(to []NodeSet, order []int, group NodeSet) []NodeSet {
	order = slices.DeleteFunc(slices.Clone(order), func(id int) bool { return !group.Has(id) })
	for first := range order {
		var s NodeSet
		for _, id := range order[first:] {
			s = s.With(id)
			to = append(to, s)
		}
	}
	return to
}

// bySize compares by size, and lexicographically within a size.
func bySize(s, t NodeSet) int {
	if c := cmp.Compare(s.Len(), t.Len()); c != 0 {
		return c
	}
	// The first node that only one of them has decides.
	differ := s ^ t
	switch lowest := differ & -differ; {
	case differ == 0:
		return 0
	case s&lowest != 0:
		return -1
	default:
		return 1
	}
}

// byNearness is an order of all nodes. It goes from the first node with CPUs to
// the one nearest to it, on to the one nearest to that, and so on; of those
// equally near, nodes of the same socket come first, then smaller IDs. Where
// distances have levels (nodes in sockets in drawers), this leaves no part before
// it has seen all of it. Nodes without CPUs follow the one they are nearest to.
func (m Machine) byNearness() []int {
	socket := map[int]int{}
	for _, c := range m.CPUs {
		socket[c.Node] = c.Socket
	}
	var rest, others []Node
	for _, n := range m.Nodes {
		if _, ok := socket[n.ID]; ok {
			rest = append(rest, n)
		} else {
			others = append(others, n)
		}
	}
	// The order is total, so that equal machines have equal chains.
	near := func(at Node) func(a, b Node) int {
		here := socket[at.ID]
		elsewhere := func(n Node) int {
			if s, ok := socket[n.ID]; ok && s == here {
				return 0
			}
			return 1
		}
		return func(a, b Node) int {
			return cmp.Or(
				cmp.Compare(m.distance(at, a.ID), m.distance(at, b.ID)),
				cmp.Compare(elsewhere(a), elsewhere(b)),
				cmp.Compare(a.ID, b.ID))
		}
	}
	var chain []Node
	for len(rest) > 0 {
		next := rest[0]
		if len(chain) > 0 {
			next = slices.MinFunc(rest, near(chain[len(chain)-1]))
		}
		chain = append(chain, next)
		rest = slices.DeleteFunc(rest, func(n Node) bool { return n.ID == next.ID })
	}
	// A node of memory alone, such as a CXL device, is used from the CPUs nearest
	// to it.
	behind := map[int][]int{}
	for _, n := range others {
		host := n
		// A machine without CPUs is not valid; it gets an empty order.
		if len(chain) > 0 {
			host = slices.MinFunc(chain, near(n))
		}
		behind[host.ID] = append(behind[host.ID], n.ID)
	}
	order := make([]int, 0, len(m.Nodes))
	for _, n := range chain {
		order = append(append(order, n.ID), behind[n.ID]...)
	}
	return order
}

// distance is that from a node to one of m's, or 0 if the machine does not tell.
// IDs may have gaps, so that an ID is not an index.
func (m Machine) distance(from Node, to int) int {
	i, ok := slices.BinarySearchFunc(m.Nodes, to, func(n Node, id int) int { return n.ID - id })
	if !ok || i >= len(from.Distances) {
		return 0
	}
	return from.Distances[i]
}
