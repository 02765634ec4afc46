package cpumgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// unit is a core, a last-level cache, a socket or a NUMA node. Units of one
// kind may differ in size, as on machines with two kinds of cores.
type unit struct {
	id   int
	cpus numa.CPUSet
	size int
}

// layout is a machine, arranged for the search: its units with their CPUs, and which units
// contain which. It is immutable.
type layout struct {
	m                             numa.Machine
	all                           numa.CPUSet
	cores, caches, sockets, nodes []unit // in ascending order of ID

	// The numbers in the fields below are indices of the tables above.
	socketNodes, socketCores             [][]int
	nodeSockets, nodeCores, nodeCaches   [][]int
	cacheCores                           [][]int
	coreOf, cacheOf, socketOf, nodePlace []int // by CPU ID; -1 for an ID without a CPU

	// nodesFirst reports whether NUMA nodes contain sockets, instead of the reverse.
	nodesFirst bool
	// threads is the most common number of CPUs of a core, and minThreads the smallest.
	threads, minThreads int
}

// newLayout arranges a valid machine. A policy creates one layout and keeps it.
func newLayout(m numa.Machine) *layout {
	l := &layout{m: m, all: m.AllCPUs()}
	l.cores, l.coreOf = units(m, func(c numa.CPU) int { return c.Core })
	l.caches, l.cacheOf = units(m, func(c numa.CPU) int { return c.Cache })
	l.sockets, l.socketOf = units(m, func(c numa.CPU) int { return c.Socket })
	l.nodes, l.nodePlace = units(m, func(c numa.CPU) int { return c.Node })
	l.socketNodes = l.inside(l.sockets, l.nodePlace)
	l.socketCores = l.inside(l.sockets, l.coreOf)
	l.cacheCores = l.inside(l.caches, l.coreOf)
	l.nodeSockets = l.inside(l.nodes, l.socketOf)
	l.nodeCores = l.inside(l.nodes, l.coreOf)
	l.nodeCaches = l.inside(l.nodes, l.cacheOf)
	// As in the kubelet, the numbers decide: either a socket has several nodes, or a node has
	// several sockets.
	l.nodesFirst = len(l.sockets) >= len(l.nodes)
	count := make([]int, len(m.CPUs)+1) // number of cores, by size
	l.minThreads = len(m.CPUs)
	for _, c := range l.cores {
		count[c.size]++
		l.minThreads = min(l.minThreads, c.size)
	}
	// If two sizes are equally common, the larger one counts.
	for size, n := range count {
		if n > 0 && n >= count[l.threads] {
			l.threads = size
		}
	}
	return l
}

// units groups a machine's CPUs by a number that each CPU has, for example its core. table has
// the groups, and place the index of each CPU's group by CPU ID. place is -1 for an ID that no
// CPU has.
func units(m numa.Machine, number func(numa.CPU) int) (table []unit, place []int) {
	if len(m.CPUs) == 0 {
		return nil, nil
	}
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = number(c)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	// CPUs are in ascending order of ID, so the last one determines the length.
	place = slices.Repeat([]int{-1}, m.CPUs[len(m.CPUs)-1].ID+1)
	table = make([]unit, len(ids))
	for _, c := range m.CPUs {
		i, _ := slices.BinarySearch(ids, number(c))
		place[c.ID] = i
		table[i].size++
	}
	// All units share one slice; each has its own part of it.
	members, next := make([]int, len(m.CPUs)), make([]int, len(ids))
	for i := 1; i < len(ids); i++ {
		next[i] = next[i-1] + table[i-1].size
	}
	for _, c := range m.CPUs {
		i := place[c.ID]
		members[next[i]] = c.ID
		next[i]++
	}
	for i, id := range ids {
		table[i].id = id
		table[i].cpus = numa.CPUs(members[next[i]-table[i].size : next[i]]...)
	}
	return table, place
}

// inside returns, for each parent, the indices of the units that its CPUs belong to, in ascending
// order. A unit may be in several parents.
func (l *layout) inside(parents []unit, childOf []int) [][]int {
	lists := make([][]int, len(parents))
	met := make([]int, l.m.CPUs[len(l.m.CPUs)-1].ID+1) // the last parent in which a child was found, from 1
	for i, p := range parents {
		for cpu := range p.cpus.All() {
			if child := childOf[cpu]; met[child] != i+1 {
				met[child] = i + 1
				lists[i] = append(lists[i], child)
			}
		}
		slices.Sort(lists[i])
	}
	return lists
}

// wholeCores returns the CPUs of those cores whose CPUs are all in set.
func (l *layout) wholeCores(set numa.CPUSet) numa.CPUSet {
	var ids []int
	for _, c := range l.cores {
		if set.IntersectLen(c.cpus) == c.size {
			ids = slices.AppendSeq(ids, c.cpus.All())
		}
	}
	return numa.CPUs(ids...)
}

// siblings returns the CPUs of all cores that have a CPU in set.
func (l *layout) siblings(set numa.CPUSet) numa.CPUSet {
	for _, c := range l.cores {
		if set.IntersectLen(c.cpus) > 0 {
			set = set.Union(c.cpus)
		}
	}
	return set
}

// whole reports whether a set consists of whole cores.
func (l *layout) whole(set numa.CPUSet) bool {
	for cpu := range set.All() {
		if !l.cores[l.coreOf[cpu]].cpus.SubsetOf(set) {
			return false
		}
	}
	return true
}

// freeByNode counts the CPUs of a set on each node that has CPUs. Nodes without a free CPU are
// listed with 0.
func (l *layout) freeByNode(set numa.CPUSet) []NodeCPUs {
	counts := make([]NodeCPUs, len(l.nodes))
	for i, n := range l.nodes {
		counts[i] = NodeCPUs{Node: n.id, CPUs: set.IntersectLen(n.cpus)}
	}
	return counts
}
