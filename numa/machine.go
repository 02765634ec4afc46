package numa

import (
	"errors"
	"fmt"
	"slices"
)

// Machine describes the CPUs and NUMA nodes of a machine. It is shared, and read-only after its
// creation.
type Machine struct {
	// CPUs are the logical CPUs that are online, in ascending order of ID.
	CPUs []CPU
	// Nodes are the NUMA nodes, with and without CPUs, in ascending order of ID.
	Nodes []Node
}

// CPU is one logical CPU, that is one hardware thread. Numbers of cores, caches and
// sockets are unique over the whole machine, and have no other meaning.
type CPU struct {
	ID int
	// Core is the smallest ID among the threads of the CPU's core, online or not.
	Core int
	// Cache is the smallest ID among the CPUs that share its last-level cache.
	Cache int
	// Socket is the physical package.
	Socket int
	// Node is the ID of the CPU's NUMA node.
	Node int
}

// Node has the memory and the distances of one NUMA node.
type Node struct {
	ID int
	// Memory is the node's memory in bytes, huge pages included.
	Memory uint64
	// HugePages is the number of huge pages by page size in bytes.
	HugePages map[uint64]uint64
	// Distances are the distances from the node to all nodes, in the order of Machine.Nodes. The
	// distance to the node itself is 10 (ACPI, System Locality Information Table). If Distances
	// is nil, they are unknown.
	Distances []int
}

// Validate returns all mistakes in m. Machines that a program builds itself need it; [ReadSysfs]
// calls it.
func (m Machine) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(m.CPUs) == 0 {
		bad("CPUs is empty; a machine has at least one")
	}
	if len(m.Nodes) == 0 {
		bad("Nodes is empty; a machine has at least one")
	}
	known := map[int]bool{}
	for i, n := range m.Nodes {
		if n.ID < 0 || n.ID >= MaxNodes {
			bad("Nodes[%d].ID is %d; want 0 to %d", i, n.ID, MaxNodes-1)
		}
		// Nodes are found by binary search, so they must be sorted.
		if i > 0 && m.Nodes[i-1].ID >= n.ID {
			bad("Nodes[%d].ID is %d after %d; want ascending numbers", i, n.ID, m.Nodes[i-1].ID)
		}
		if n.Distances != nil && len(n.Distances) != len(m.Nodes) {
			bad("Nodes[%d].Distances has %d entries; want %d, one for each node", i, len(n.Distances), len(m.Nodes))
		}
		known[n.ID] = true
	}
	for i, c := range m.CPUs {
		if c.ID < 0 || c.ID >= MaxCPUs {
			bad("CPUs[%d].ID is %d; want 0 to %d", i, c.ID, MaxCPUs-1)
		}
		if i > 0 && m.CPUs[i-1].ID >= c.ID {
			bad("CPUs[%d].ID is %d after %d; want ascending numbers", i, c.ID, m.CPUs[i-1].ID)
		}
		if !known[c.Node] {
			bad("CPUs[%d].Node is %d; the machine has no such node", i, c.Node)
		}
	}
	return errors.Join(errs...)
}

// AllCPUs returns the CPUs of the machine.
func (m Machine) AllCPUs() CPUSet {
	return m.cpus(func(CPU) bool { return true })
}

// CPUsOf returns the CPUs of some nodes.
func (m Machine) CPUsOf(nodes NodeSet) CPUSet {
	return m.cpus(func(c CPU) bool { return nodes.Has(c.Node) })
}

// cpus returns the CPUs for which want returns true.
func (m Machine) cpus(want func(CPU) bool) CPUSet {
	var ids []int
	for _, c := range m.CPUs {
		if want(c) {
			ids = append(ids, c.ID)
		}
	}
	return CPUs(ids...)
}

// AllNodes returns the nodes of the machine.
func (m Machine) AllNodes() NodeSet {
	var s NodeSet
	for _, n := range m.Nodes {
		s = s.With(n.ID)
	}
	return s
}

// Node returns a node by its ID.
func (m Machine) Node(id int) (Node, bool) {
	i, ok := slices.BinarySearchFunc(m.Nodes, id, func(n Node, id int) int { return n.ID - id })
	if !ok {
		return Node{}, false
	}
	return m.Nodes[i], true
}
