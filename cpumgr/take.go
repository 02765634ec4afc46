package cpumgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Take chooses n of the free CPUs of a machine, like the static policy but without a state. It
// uses the options that affect the choice: FullPCPUsOnly, DistributeAcrossNUMA,
// DistributeAcrossCores and PreferUncoreCache. The same arguments give the same CPUs.
//
// Without options it packs: first whole NUMA nodes and sockets, then whole cores, then single
// CPUs of partly used cores. Among units of one kind, the one with the fewest free CPUs comes
// first, then the lowest number.
//
// The error is an [*InsufficientError] if fewer than n CPUs are free, and an [*SMTAlignmentError]
// if FullPCPUsOnly cannot be satisfied. Take computes the machine's layout at each call; a
// [Static] computes it once.
func Take(m numa.Machine, free numa.CPUSet, n int, o Options) (numa.CPUSet, error) {
	if err := errors.Join(m.Validate(), o.validate()); err != nil {
		return numa.CPUSet{}, err
	}
	l := newLayout(m)
	return l.take(free.Intersect(l.all), n, 0, o)
}

// take chooses n CPUs, first from the nodes in the set near, then from all nodes. If near is empty,
// no node is preferred.
func (l *layout) take(free numa.CPUSet, n int, near numa.NodeSet, o Options) (numa.CPUSet, error) {
	if n < 0 {
		return numa.CPUSet{}, fmt.Errorf("%d CPUs requested; want 0 or more", n)
	}
	if n > free.Len() {
		return numa.CPUSet{}, l.insufficient(free, n)
	}
	// As in the kubelet, the first attempt uses all free CPUs, and usually gives whole cores.
	got, err := l.takeNear(free, n, near, o)
	if err != nil || !o.FullPCPUsOnly || l.whole(got) {
		return got, err
	}
	// The result has parts of cores; try again without partly free cores.
	whole := l.wholeCores(free)
	if n <= whole.Len() {
		if got, err = l.takeNear(whole, n, near, o); err != nil || l.whole(got) {
			return got, err
		}
		if got, ok := l.takeCores(whole, n); ok {
			return got, nil
		}
	}
	return numa.CPUSet{}, l.misaligned(whole, n)
}

// takeNear chooses n CPUs. It takes as many of them as possible from the nodes in the set near.
func (l *layout) takeNear(free numa.CPUSet, n int, near numa.NodeSet, o Options) (numa.CPUSet, error) {
	if near == 0 {
		return l.choose(free, n, o)
	}
	aligned := free.Intersect(l.cpusNear(near, o.AlignBySocket))
	got, err := l.choose(aligned, min(n, aligned.Len()), o)
	if err != nil || got.Len() == n {
		return got, err
	}
	rest, err := l.choose(free.Minus(got), n-got.Len(), o)
	return got.Union(rest), err
}

// cpusNear returns the CPUs of the given nodes. If bySocket is true, it returns all CPUs of the
// sockets of these nodes.
func (l *layout) cpusNear(nodes numa.NodeSet, bySocket bool) numa.CPUSet {
	var cpus numa.CPUSet
	for i, n := range l.nodes {
		if !nodes.Has(n.id) {
			continue
		}
		cpus = cpus.Union(n.cpus)
		if bySocket {
			for _, s := range l.nodeSockets[i] {
				cpus = cpus.Union(l.sockets[s].cpus)
			}
		}
	}
	return cpus
}

// takeCores chooses whole cores for n CPUs, the largest cores first. If cores differ in size, this
// finds a solution that packing may miss. It returns false if no set of cores has exactly n CPUs
// together, and may do so in other cases.
func (l *layout) takeCores(free numa.CPUSet, n int) (numa.CPUSet, bool) {
	r := run{l: l, free: free, need: n}
	cores := r.cores()
	slices.SortStableFunc(cores, func(a, b int) int { return cmp.Compare(l.cores[b].size, l.cores[a].size) })
	r.takeWhole(l.cores, cores)
	return r.got, r.need == 0
}

// choose runs the algorithm for the options. free has at least n CPUs.
func (l *layout) choose(free numa.CPUSet, n int, o Options) (numa.CPUSet, error) {
	if o.DistributeAcrossNUMA {
		group := 1
		if o.FullPCPUsOnly {
			group = l.threads
		}
		return l.distribute(free, n, group, o.DistributeAcrossCores)
	}
	return l.pack(free, n, o.DistributeAcrossCores, o.PreferUncoreCache)
}

// pack takes whole units from large to small, and single CPUs last. If spread is true, it takes
// no whole cores, but single CPUs of different cores. If uncore is true, it tries to use few
// last-level caches for the CPUs that remain after whole nodes and sockets.
func (l *layout) pack(free numa.CPUSet, n int, spread, uncore bool) (numa.CPUSet, error) {
	if n > free.Len() {
		return numa.CPUSet{}, l.insufficient(free, n)
	}
	r := run{l: l, free: free, need: n}
	r.takeLarge()
	if uncore {
		r.takeCaches()
	}
	if !spread && r.need > 0 {
		r.takeWhole(l.cores, r.cores())
	}
	if r.need > 0 {
		r.takeSingles(spread)
	}
	return r.got, nil
}

// run is the state of one call of pack.
type run struct {
	l    *layout
	free numa.CPUSet
	need int
	got  numa.CPUSet
}

// take moves CPUs from the free ones to the result.
func (r *run) take(cpus numa.CPUSet) {
	r.free = r.free.Minus(cpus)
	r.got = r.got.Union(cpus)
	r.need -= cpus.Len()
}

// takeLarge takes whole NUMA nodes and sockets, the outer ones first.
func (r *run) takeLarge() {
	if r.l.nodesFirst {
		r.takeWhole(r.l.nodes, r.nodes())
		r.takeWhole(r.l.sockets, r.sockets())
	} else {
		r.takeWhole(r.l.sockets, r.sockets())
		r.takeWhole(r.l.nodes, r.nodes())
	}
}

// takeWhole takes those units that are completely free and have no more CPUs than are still
// needed. order has indices of the table, each once; the units do not overlap. A unit that is too
// large is skipped, since a later one may fit.
func (r *run) takeWhole(table []unit, order []int) {
	var ids []int
	need := r.need
	for _, i := range order {
		if u := table[i]; need >= u.size && u.cpus.SubsetOf(r.free) {
			need -= u.size
			ids = slices.AppendSeq(ids, u.cpus.All())
		}
	}
	r.take(numa.CPUs(ids...))
}

// takeSingles takes single CPUs until there are enough. It takes them from partly used cores
// first, since these have the fewest free CPUs. If spread is true, it goes through each socket in
// ascending order of CPUs, which on most machines gives CPUs of different cores.
func (r *run) takeSingles(spread bool) {
	table, order := r.l.cores, r.cores
	if spread {
		table, order = r.l.sockets, r.sockets
	}
	var ids []int
	for _, i := range order() {
		for cpu := range table[i].cpus.All() {
			if len(ids) == r.need {
				break
			}
			if r.free.Has(cpu) {
				ids = append(ids, cpu)
			}
		}
	}
	r.take(numa.CPUs(ids...))
}
