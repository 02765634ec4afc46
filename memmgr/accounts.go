package memmgr

import (
	"math/bits"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// accounts are the used amounts of the machine's nodes in a state. Nodes that serve the same
// blocks form a group with one account, since the kernel chooses the node within the group for
// each page.
type accounts struct {
	taken numa.NodeSet // nodes in any group
	of    [numa.MaxNodes]*group
}

// group is a set of nodes with the amounts used on them. Each node is in one group.
type group struct {
	nodes numa.NodeSet
	used  []uint64 // by index in Static.resources
	mixed bool     // the group's blocks have different sets of nodes, so nothing more is allocated from it
}

// accounts adds up the charges of all pods. The result depends only on the assignments, not on
// their order.
func (p *Static) accounts(s State) *accounts {
	a := &accounts{}
	for _, e := range s.pods {
		for _, b := range e.charges {
			g := a.exactly(b.Nodes)
			if g == nil {
				g = a.join(b.Nodes, len(p.resources))
			}
			if i := slices.Index(p.resources, b.Resource); i >= 0 {
				g.used[i] = plus(g.used[i], b.Bytes)
			}
		}
	}
	return a
}

// exactly returns the group with exactly these nodes, or nil.
func (a *accounts) exactly(nodes numa.NodeSet) *group {
	if g := a.of[bits.TrailingZeros64(uint64(nodes))]; g != nil && g.nodes == nodes {
		return g
	}
	return nil
}

// join merges nodes and all groups that overlap them into one group. Overlaps exist only in
// rebuilt states.
func (a *accounts) join(nodes numa.NodeSet, resources int) *group {
	all := &group{nodes: nodes, used: make([]uint64, resources)}
	for _, g := range a.groups(nodes) {
		all.nodes |= g.nodes
		all.mixed = true
		for i, bytes := range g.used {
			all.used[i] = plus(all.used[i], bytes)
		}
	}
	for id := range all.nodes.All() {
		a.of[id] = all
	}
	a.taken |= all.nodes
	return all
}

// groups returns the groups that contain at least one of the nodes.
func (a *accounts) groups(nodes numa.NodeSet) []*group {
	var list []*group
	for rest := a.taken & nodes; rest != 0; {
		g := a.of[bits.TrailingZeros64(uint64(rest))]
		list = append(list, g)
		rest &^= g.nodes
	}
	return list
}

// open reports whether a block can be placed on exactly these nodes: none of them is in use, or
// all are used by blocks on the same set.
func (a *accounts) open(nodes numa.NodeSet) bool {
	if nodes&a.taken == 0 {
		return nodes != 0
	}
	g := a.exactly(nodes)
	return g != nil && !g.mixed
}

// used returns the amount of one resource that blocks on exactly these nodes use. nodes is not
// empty.
func (a *accounts) used(nodes numa.NodeSet, resource int) uint64 {
	if g := a.exactly(nodes); g != nil {
		return g.used[resource]
	}
	return 0
}
