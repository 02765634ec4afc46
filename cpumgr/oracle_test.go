package cpumgr

import (
	"math"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// oracle is a literal and slow implementation of the rules of allocation: a map of the free CPUs,
// filtered again at each step, and all sets of nodes tried. It is valid for uniform machines.
type oracle struct {
	m    numa.Machine
	all  map[int]numa.CPU
	free map[int]numa.CPU
	need int
	got  []int
}

func newOracle(m numa.Machine, free numa.CPUSet) *oracle {
	o := &oracle{m: m, all: map[int]numa.CPU{}, free: map[int]numa.CPU{}}
	for _, c := range m.CPUs {
		o.all[c.ID] = c
		if free.Has(c.ID) {
			o.free[c.ID] = c
		}
	}
	return o
}

func coreOf(c numa.CPU) int   { return c.Core }
func cacheOf(c numa.CPU) int  { return c.Cache }
func socketOf(c numa.CPU) int { return c.Socket }
func nodeOf(c numa.CPU) int   { return c.Node }
func any1(numa.CPU) int       { return 1 }

type by func(numa.CPU) int

// in returns the CPUs of a unit.
func in(cpus map[int]numa.CPU, unit by, id int) []int {
	var ids []int
	for _, c := range cpus {
		if unit(c) == id {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (o *oracle) count(unit by) int {
	ids := map[int]bool{}
	for _, c := range o.all {
		ids[unit(c)] = true
	}
	return len(ids)
}

// sorted lists the units with free CPUs inside another, fewest free first.
func (o *oracle) sorted(unit, outer by, id int) []int {
	var ids []int
	for _, c := range o.free {
		if outer(c) == id && !slices.Contains(ids, unit(c)) {
			ids = append(ids, unit(c))
		}
	}
	slices.SortFunc(ids, func(a, b int) int {
		if d := len(in(o.free, unit, a)) - len(in(o.free, unit, b)); d != 0 {
			return d
		}
		return a - b
	})
	return ids
}

func (o *oracle) nested(outer []int, by, unit by) (ids []int) {
	for _, id := range outer {
		ids = append(ids, o.sorted(unit, by, id)...)
	}
	return ids
}

func (o *oracle) nodesFirst() bool { return o.count(socketOf) >= o.count(nodeOf) }

func (o *oracle) nodes() []int {
	if o.nodesFirst() {
		return o.sorted(nodeOf, any1, 1)
	}
	return o.nested(o.sockets(), socketOf, nodeOf)
}

func (o *oracle) sockets() []int {
	if o.nodesFirst() {
		return o.nested(o.nodes(), nodeOf, socketOf)
	}
	return o.sorted(socketOf, any1, 1)
}

func (o *oracle) cores() []int {
	if o.nodesFirst() {
		return o.nested(o.sockets(), socketOf, coreOf)
	}
	return o.nested(o.nodes(), nodeOf, coreOf)
}

func (o *oracle) takeIDs(ids []int) {
	for _, id := range ids {
		delete(o.free, id)
	}
	o.got = append(o.got, ids...)
	o.need -= len(ids)
}

func (o *oracle) takeFull(unit by, order []int) {
	for _, id := range order {
		if free := in(o.free, unit, id); len(free) == len(in(o.all, unit, id)) && o.need >= len(free) {
			o.takeIDs(free)
		}
	}
}

func (o *oracle) threads() int { return len(o.all) / o.count(coreOf) }

func (o *oracle) packed(spread, uncore bool) {
	if o.need == 0 {
		return
	}
	if o.nodesFirst() {
		o.takeFull(nodeOf, o.nodes())
		o.takeFull(socketOf, o.sockets())
	} else {
		o.takeFull(socketOf, o.sockets())
		o.takeFull(nodeOf, o.nodes())
	}
	if uncore {
		for _, id := range o.nested(o.nodes(), nodeOf, cacheOf) {
			if o.need == 0 {
				return
			}
			if o.need >= len(o.all)/o.count(cacheOf) {
				o.takeFull(cacheOf, o.nested(o.nodes(), nodeOf, cacheOf))
			}
			if o.need == 0 {
				return
			}
			var cores []int
			for _, cpu := range in(o.free, cacheOf, id) {
				if core := o.free[cpu].Core; !slices.Contains(cores, core) {
					cores = append(cores, core)
				}
			}
			slices.Sort(cores)
			cores = cores[:min(len(cores), (o.need+o.threads()-1)/o.threads())]
			var cpus []int
			for _, core := range cores {
				cpus = append(cpus, in(o.free, coreOf, core)...)
			}
			slices.Sort(cpus)
			if o.need%2 != 0 && o.threads() > 1 && len(cpus) > o.need {
				cpus = cpus[:len(cpus)-1]
			}
			if len(cpus) == o.need {
				o.takeIDs(cpus)
			}
		}
	}
	if !spread {
		o.takeFull(coreOf, o.cores())
	}
	unit, order := by(coreOf), o.cores()
	if spread {
		unit, order = socketOf, o.sockets()
	}
	for _, id := range order {
		free := in(o.free, unit, id)
		o.takeIDs(free[:min(len(free), o.need)])
	}
}

func (o *oracle) take(n int, opt Options) numa.CPUSet {
	o.need = n
	if opt.DistributeAcrossNUMA {
		group := 1
		if opt.FullPCPUsOnly {
			group = o.threads()
		}
		o.distributed(group)
	} else {
		o.packed(opt.DistributeAcrossCores, opt.PreferUncoreCache)
	}
	return numa.CPUs(o.got...)
}

// subsets returns the subsets of a size, in lexicographic order.
func subsets(of []int, size int) [][]int {
	if size == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for i := range of {
		for _, rest := range subsets(of[i+1:], size-1) {
			all = append(all, append([]int{of[i]}, rest...))
		}
	}
	return all
}

func stddev(after map[int]int) float64 {
	r := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0.0
	for _, x := range after {
		sum += float64(x)
	}
	mean := r(sum / float64(len(after)))
	sum = 0
	for _, x := range after {
		sum += (float64(x) - mean) * (float64(x) - mean)
	}
	return r(math.Sqrt(sum / float64(len(after))))
}

// fromNode packs on one node.
func (o *oracle) fromNode(node, n int) {
	part := newOracle(o.m, numa.CPUs(in(o.free, nodeOf, node)...))
	part.need = n
	part.packed(false, false)
	o.takeIDs(part.got)
}

func (o *oracle) distributed(group int) {
	if o.need%group != 0 || o.need == 0 {
		o.packed(false, false)
		return
	}
	nodes := o.nodes()
	free := map[int]int{}
	for _, n := range nodes {
		free[n] = len(in(o.free, nodeOf, n))
	}
	groups := (len(o.all) + group - 1) / group
	perNode := (groups + o.count(nodeOf) - 1) / o.count(nodeOf)
	needed := (o.need + group - 1) / group
	for k := (needed + perNode - 1) / perNode; k <= min(needed, len(nodes)); k++ {
		share := o.need / k / group * group
		rest := o.need - share*k
		best := math.MaxFloat64
		var combo, extra []int
	combos:
		for _, c := range subsets(nodes, k) {
			sum, whole := 0, 0
			for _, n := range c {
				sum += free[n]
				whole += free[n] / group * group
				if free[n] < share {
					continue combos
				}
			}
			if sum < o.need || whole < o.need {
				continue
			}
			after := map[int]int{}
			for _, n := range nodes {
				after[n] = free[n]
			}
			var candidates []int
			for _, n := range c {
				if after[n] -= share; after[n] >= group {
					candidates = append(candidates, n)
				}
			}
			if rest == 0 {
				if s := stddev(after); s < best {
					best, combo, extra = s, c, nil
				}
				continue
			}
			for size := len(candidates); size > 0; size-- {
			sets:
				for _, set := range subsets(candidates, size) {
					left := map[int]int{}
					for n, x := range after {
						left[n] = x
					}
					r := rest
					for r > 0 {
						before := r
						for _, n := range set {
							if r > 0 && left[n] >= group {
								left[n] -= group
								r -= group
							}
						}
						if r == before {
							continue sets
						}
					}
					if s := stddev(left); s < best {
						best, combo, extra = s, c, set
					}
				}
			}
		}
		if combo == nil {
			continue
		}
		for _, n := range combo {
			o.fromNode(n, share)
		}
		for rest > 0 {
			for _, n := range extra {
				if rest > 0 && len(in(o.free, nodeOf, n)) >= group {
					o.fromNode(n, group)
					rest -= group
				}
			}
		}
		return
	}
	o.packed(false, false)
}
