package numa

import (
	"cmp"
	"slices"
)

// maxAllSubsets is the number of nodes up to which every subset of them is a candidate. It is the
// kubelet's default of max-allowable-numa-nodes, and gives 255 sets.
const maxAllSubsets = 8

// Candidates returns the sets of nodes for which resource managers compute hints, in ascending
// order of size and lexicographic within a size. Each manager uses the sets that have enough of
// its resource.
//
// On a machine of up to 8 nodes these are all sets, as in the kubelet. On a larger machine there
// would be too many. For such a machine, Candidates takes four groups of nodes: the nodes with
// CPUs, the nodes with memory, the nodes with either, and the nodes with both. A group of up to 8
// nodes contributes all its sets. A larger group is sorted so that near nodes are neighbours, and
// contributes the runs of that order: single nodes, neighbours, sockets, and so on up to the whole
// group. Each single node and the set of all nodes are added. With n nodes, that makes at most
// 2n(n+1) + n + 1 sets from runs, and 765 from small groups.
//
// The intersection of two candidates is a candidate or empty, so that merging stays cheap on
// large machines. The caller may modify the returned list. Equal machines give equal lists.
func Candidates(m Machine) []NodeSet {
	all := m.AllNodes()
	var sets []NodeSet
	if all.Len() <= maxAllSubsets {
		sets = subsets(sets, all)
	} else {
		cpu, memory := m.withCPUs(), m.withMemory()
		order := m.byNearness()
		// CPU managers need nodes with CPUs, memory managers nodes with memory, and devices may
		// be near either.
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
	// Groups overlap, so remove duplicates: sorting makes equal sets neighbours.
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

// subsets appends every non-empty subset of the set whole to list. Subtracting 1 within the bits
// of whole leads from one subset to the next, in descending order.
func subsets(list []NodeSet, whole NodeSet) []NodeSet {
	for s := whole; s != 0; s = (s - 1) & whole {
		list = append(list, s)
	}
	return list
}

// runs appends every run of consecutive nodes of a group to list, in the given order. Two runs
// have a run or nothing in common, as Candidates promises.
func runs(list []NodeSet, order []int, group NodeSet) []NodeSet {
	order = slices.DeleteFunc(slices.Clone(order), func(id int) bool { return !group.Has(id) })
	for first := range order {
		var s NodeSet
		for _, id := range order[first:] {
			s = s.With(id)
			list = append(list, s)
		}
	}
	return list
}

// bySize compares by size, and lexicographically within a size.
func bySize(s, t NodeSet) int {
	if c := cmp.Compare(s.Len(), t.Len()); c != 0 {
		return c
	}
	// The smallest node that is in only one of the two sets decides.
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

// byNearness returns an order of all nodes. It starts with the first node with CPUs
// and continues with the nearest remaining node; among equally near ones, nodes of
// the same socket are first, then smaller IDs. Where distances have levels (nodes
// in sockets in drawers), each part is contiguous. Nodes without CPUs follow the
// nearest node with CPUs.
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
	// The order is total, so that equal machines give equal results.
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
	// A node without CPUs, such as a CXL device, is used from the CPUs nearest to it.
	behind := map[int][]int{}
	for _, n := range others {
		host := n
		// A machine without CPUs is invalid; its order is empty.
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

// distance returns the distance from node to the node with the ID target. It returns 0 if the
// machine has no distances. IDs may have gaps, so an ID is not an index.
func (m Machine) distance(node Node, target int) int {
	i, ok := slices.BinarySearchFunc(m.Nodes, target, func(n Node, id int) int { return n.ID - id })
	if !ok || i >= len(node.Distances) {
		return 0
	}
	return node.Distances[i]
}
