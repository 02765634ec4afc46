package memmgr

import "github.com/nodewright/nodewright/numa"

// NodeStats says how much memory of a NUMA node is assigned, and how much is free.
type NodeStats struct {
	ID int
	// Group is the set of nodes over which the containers on this node are spread. It is the node
	// alone if each container uses only this node.
	Group numa.NodeSet
	// Assignments is the number of blocks that the node serves.
	Assignments int
	Resources   []ResourceStats
}

// ResourceStats are the amounts of one resource on one node, in bytes. Allocatable is Total
// without Reserved and, for memory, without huge pages. It is the sum of Used and Free.
//
// For a group of nodes, only the sums over the group are meaningful: each node is shown as if the
// nodes were filled one after the other.
type ResourceStats struct {
	Resource                                 Resource
	Total, Reserved, Allocatable, Used, Free uint64
}

// Stats returns the amounts of all nodes, in the order of their IDs.
func (p *Static) Stats(s State) []NodeStats {
	a := p.accounts(s)
	stats := make([]NodeStats, len(p.machine.Nodes))
	for i, n := range p.machine.Nodes {
		stats[i] = NodeStats{ID: n.ID, Group: numa.Nodes(n.ID), Assignments: s.assignments(n.ID)}
		g := a.of[n.ID]
		if g != nil {
			stats[i].Group = g.nodes
		}
		for j, r := range p.resources {
			f := ResourceStats{Resource: r, Total: capacity(n, r), Reserved: p.reserved[n.ID][r], Allocatable: p.give[i][j]}
			if r == Memory {
				f.Total = n.Memory
			}
			if g != nil {
				f.Used = min(f.Allocatable, g.used[j])
				g.used[j] -= f.Used // the remaining nodes get the rest
			}
			f.Free = f.Allocatable - f.Used
			stats[i].Resources = append(stats[i].Resources, f)
		}
	}
	return stats
}

// assignments counts the blocks that a node serves.
func (s State) assignments(node int) int {
	n := 0
	count := func(blocks []Block) {
		for _, b := range blocks {
			if b.Nodes.Has(node) {
				n++
			}
		}
	}
	for _, e := range s.pods {
		if count(e.whole); e.whole == nil {
			for _, h := range e.containers {
				count(h.blocks)
			}
		}
	}
	return n
}
