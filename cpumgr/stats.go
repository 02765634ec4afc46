package cpumgr

import "github.com/nodewright/nodewright/numa"

// Stats are numbers about a state, for the kubelet's metrics.
type Stats struct {
	// SharedMilliCPU is the size of the shared pool without the reserved CPUs, in
	// thousandths of a CPU (cpu_manager_shared_pool_size_millicores).
	SharedMilliCPU int64
	// Exclusive is the number of CPUs outside of the shared pool
	// (cpu_manager_exclusive_cpu_allocation_count). Nodes has that number for each node with
	// CPUs, even if it is 0 (cpu_manager_allocation_per_numa).
	Exclusive int
	Nodes     []NodeCPUs
	// Containers is the number of containers with exclusive CPUs. Of these, AlignedCores counts
	// those with only whole cores, AlignedCache those within one last-level cache, and
	// AlignedNode those on one NUMA node. See Alignment.
	Containers, AlignedCores, AlignedCache, AlignedNode int
}

// Stats returns the numbers about a state.
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

// one returns 1 if aligned is true, and 0 otherwise.
func one(aligned bool) int {
	if aligned {
		return 1
	}
	return 0
}

// Alignment says which boundaries a set of CPUs respects, for the kubelet's metric
// container_aligned_compute_resources_count.
type Alignment struct {
	Cores bool // physical_cpu: whole cores only
	Cache bool // uncore_cache: one last-level cache
	Node  bool // numa_node: one NUMA node
}

// Alignment returns the alignment of a set of CPUs. A single CPU, or none, is within one cache
// and one node. A CPU that the machine does not have is within none.
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
