package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// accounts are what a state means for the machine's nodes. Nodes that serve the
// same blocks are one group with one account: which node of a group a byte
// comes from is the kernel's choice.
type accounts struct {
	taken  numa.NodeSet // nodes in any group
	groups map[numa.NodeSet]*group
}

// group is some nodes, and what is used of them.
type group struct {
	used  []uint64 // for each of Static.resources
	mixed bool     // blocks within it have different nodes; nothing more is given then
}

// accounts sums up what pods are charged. What it returns depends on the
// assignments alone, not on the order in which they came about.
func (p *Static) accounts(s State) accounts {
	a := accounts{groups: map[numa.NodeSet]*group{}}
	for _, e := range s.pods {
		for _, b := range e.charges {
			g := a.groups[b.Nodes]
			if g == nil {
				g = &group{used: make([]uint64, len(p.resources))}
				a.join(b.Nodes, g)
			}
			if i := slices.Index(p.resources, b.Resource); i >= 0 {
				g.used[i] = plus(g.used[i], b.Bytes)
			}
		}
	}
	if len(a.groups) > 1 {
		a.merge()
	}
	return a
}

func (a *accounts) join(nodes numa.NodeSet, g *group) {
	a.groups[nodes] = g
	a.taken |= nodes
}

// merge makes one group of those that have nodes in common. A policy that keeps
// to the rule never has such; a state that was rebuilt may.
func (a *accounts) merge() {
	var seen numa.NodeSet
	disjoint := true
	for nodes := range a.groups {
		disjoint = disjoint && seen&nodes == 0
		seen |= nodes
	}
	for !disjoint {
		disjoint = true
		for nodes, g := range a.groups {
			for other, h := range a.groups {
				if nodes == other || nodes&other == 0 {
					continue
				}
				all := &group{used: make([]uint64, len(g.used)), mixed: true}
				for i := range all.used {
					all.used[i] = plus(g.used[i], h.used[i])
				}
				delete(a.groups, nodes)
				delete(a.groups, other)
				a.groups[nodes|other] = all
				disjoint = false
				break
			}
			if !disjoint {
				break
			}
		}
	}
}

// open tells whether a block on just these nodes keeps to the rule that a node
// is in one group: none of them is in use, or all are by blocks on the same.
func (a accounts) open(nodes numa.NodeSet) bool {
	if nodes&a.taken == 0 {
		return nodes != 0
	}
	g := a.groups[nodes]
	return g != nil && !g.mixed
}

// used is what is taken of one resource by blocks on just these nodes.
func (a accounts) used(nodes numa.NodeSet, resource int) uint64 {
	if g := a.groups[nodes]; g != nil {
		return g.used[resource]
	}
	return 0
}

// groupOf is the group of a node, or the node alone.
func (a accounts) groupOf(node int) numa.NodeSet {
	for nodes := range a.groups {
		if nodes.Has(node) {
			return nodes
		}
	}
	return numa.Nodes(node)
}
