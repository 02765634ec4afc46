package cpumgr

import (
	"cmp"
	"slices"
)

// The order of units, which is the same on every level: fewest free CPUs first, and lower ID
// first among equals. Inner units follow the order of their outer units. Units without a free CPU
// are omitted.

// nodes returns the nodes with free CPUs, in the order in which CPUs are taken from them (see
// [Take]). The methods sockets, cores and caches do the same for their units.
func (r *run) nodes() []int {
	if r.l.nodesFirst {
		return r.rank(nil, r.l.nodes, every(len(r.l.nodes)))
	}
	return r.within(r.sockets(), r.l.socketNodes, r.l.nodes)
}

func (r *run) sockets() []int {
	if r.l.nodesFirst {
		return r.within(r.nodes(), r.l.nodeSockets, r.l.sockets)
	}
	return r.rank(nil, r.l.sockets, every(len(r.l.sockets)))
}

func (r *run) cores() []int {
	if r.l.nodesFirst {
		return r.within(r.sockets(), r.l.socketCores, r.l.cores)
	}
	return r.within(r.nodes(), r.l.nodeCores, r.l.cores)
}

func (r *run) caches() []int { return r.within(r.nodes(), r.l.nodeCaches, r.l.caches) }

// within ranks the units inside each outer unit, and returns each once: for example, a socket in
// two nodes counts with the first.
func (r *run) within(outer []int, inside [][]int, table []unit) []int {
	order := make([]int, 0, len(table))
	met := make([]bool, len(table))
	for _, o := range outer {
		from := len(order)
		order = r.rank(order, table, inside[o])
		order = append(order[:from], slices.DeleteFunc(order[from:], func(i int) bool { return met[i] })...)
		for _, i := range order[from:] {
			met[i] = true
		}
	}
	return order
}

// rank appends to list those units in among that have free CPUs, as indices of the table. Units
// with the fewest free CPUs come first.
func (r *run) rank(list []int, table []unit, among []int) []int {
	type ranked struct{ free, place int }
	ranks := make([]ranked, 0, len(among))
	for _, i := range among {
		if free := r.free.IntersectLen(table[i].cpus); free > 0 {
			ranks = append(ranks, ranked{free, i})
		}
	}
	slices.SortFunc(ranks, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.place, b.place))
	})
	for _, k := range ranks {
		list = append(list, k.place)
	}
	return list
}

// every returns the numbers from 0 to n-1.
func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
