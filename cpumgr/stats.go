package cpumgr

import "github.com/nodewright/nodewright/numa"

// Stats are the numbers of a state, in the kubelet's meaning of its metrics.
type Stats struct {
	// SharedMilliCPU is what containers without CPUs of their own have, less
	// the reserved CPUs, in thousandths of a CPU
	// (cpu_manager_shared_pool_size_millicores).
	SharedMilliCPU int64
	// Exclusive counts the CPUs that are not shared by all
	// (cpu_manager_exclusive_cpu_allocation_count), and Nodes those of each
	// node that has CPUs, nodes with none assigned included
	// (cpu_manager_allocation_per_numa).
	Exclusive int
	Nodes     []NodeCPUs
	// Containers counts those with CPUs of their own, and the others count
	// how many of them are aligned in which way.
	Containers, AlignedCores, AlignedCache, AlignedNode int
}

// Stats counts what a state says.
func (p *Static) Stats(s State) Stats {
	st := Stats{SharedMilliCPU: int64(s.shared.Minus(p.reserved).Len()) * 1000}
	var assigned numa.CPUSet
	for _, pod := range s.pods {
		assigned = assigned.Union(pod.held())
		for _, c := range pod.Containers {
			if c.Pooled {
				continue
			}
			a := p.Alignment(c.CPUs)
			st.Containers++
			st.AlignedCores += one(a.Cores)
			st.AlignedCache += one(a.Cache)
			st.AlignedNode += one(a.Node)
		}
	}
	st.Exclusive = assigned.Len()
	st.Nodes = p.l.freeByNode(assigned)
	return st
}

// one counts a yes.
func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Alignment describes what a set of CPUs keeps together: the boundaries of the
// kubelet's metric container_aligned_compute_resources_count.
type Alignment struct {
	Cores bool // physical_cpu: whole cores only
	Cache bool // uncore_cache: one last-level cache
	Node  bool // numa_node: one NUMA node
}

// Alignment returns how well CPUs lie together. A single CPU, like none, is within
// one cache and one node; a CPU that the machine does not have is in no place.
func (p *Static) Alignment(cpus numa.CPUSet) Alignment {
	if !cpus.SubsetOf(p.l.all) {
		one := cpus.Len() <= 1
		return Alignment{Cache: one, Node: one}
	}
	within := func(table []unit) bool {
		parts := 0
		for _, u := range table {
			parts += one(cpus.IntersectLen(u.cpus) > 0)
		}
		return parts <= 1
	}
	return Alignment{Cores: p.l.whole(cpus), Cache: within(p.l.caches), Node: within(p.l.nodes)}
}
