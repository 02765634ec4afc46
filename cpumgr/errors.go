package cpumgr

import (
	"fmt"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// NodeCPUs counts CPUs of a NUMA node.
type NodeCPUs struct{ Node, CPUs int }

// InsufficientError reports that there are fewer free CPUs than a container asks
// for.
type InsufficientError struct {
	Requested int
	Free      int        // CPUs
	Cores     int        // how many cores are free with all their CPUs
	Nodes     []NodeCPUs // the free CPUs of each node that has CPUs
}

// insufficient returns the error for n CPUs of those that are free, with the
// counts from which an operator sees why: free CPUs, whole cores, and nodes.
func (l *layout) insufficient(free numa.CPUSet, n int) error {
	cores := 0
	for _, c := range l.cores {
		if c.cpus.SubsetOf(free) {
			cores++
		}
	}
	return &InsufficientError{Requested: n, Free: free.Len(), Cores: cores, Nodes: l.freeByNode(free)}
}

func (e *InsufficientError) Error() string {
	return fmt.Sprintf("%d CPUs requested, but %d are free (%s; %d whole cores)", e.Requested, e.Free, perNode(e.Nodes), e.Cores)
}

// perNode lists counts in the order of the nodes.
func perNode(nodes []NodeCPUs) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = fmt.Sprintf("%d on node %d", n.CPUs, n.Node)
	}
	return strings.Join(parts, ", ")
}

// SMTAlignmentError reports that a request cannot be served with whole cores, as
// [Options].FullPCPUsOnly wants it.
type SMTAlignmentError struct {
	Requested int // CPUs
	// PerCore is the smallest of the machine's cores, where they differ.
	PerCore int // CPUs of a core
	// Physical reports that the number is right, but not so many CPUs are free
	// in whole cores: only Available, which Nodes has for each node.
	Physical  bool
	Available int
	Nodes     []NodeCPUs
}

// misaligned returns what there is instead of n CPUs: whole cores.
func (l *layout) misaligned(whole numa.CPUSet, n int) error {
	return &SMTAlignmentError{Requested: n, PerCore: l.minThreads, Physical: true, Available: whole.Len(), Nodes: l.freeByNode(whole)}
}

// Reason is what the kubelet says of a pod that it rejects for this.
func (*SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

func (e *SMTAlignmentError) Error() string {
	if e.Physical {
		return fmt.Sprintf("%d CPUs requested in whole cores, but cores that are free have %d (%s)", e.Requested, e.Available, perNode(e.Nodes))
	}
	return fmt.Sprintf("%d CPUs requested; want a multiple of %d, the CPUs of a core", e.Requested, e.PerCore)
}

// EmptyPodSharedPoolError reports that containers of a pod with CPUs of its own
// take all of them, so that nothing is left for the container that it names.
// Such a container would have no CPU to run on.
type EmptyPodSharedPoolError struct {
	Container string
	Total     int // CPUs of the pod
	Exclusive int // of which so many are containers' own
}

// Reason is what the kubelet says of a pod that it rejects for this.
func (*EmptyPodSharedPoolError) Reason() string { return "EmptyPodSharedPoolError" }

func (e *EmptyPodSharedPoolError) Error() string {
	// Up to the colon it is the kubelet's, which tools look for.
	return fmt.Sprintf("pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers: container %q; the pod asks for %d CPUs, its other containers for %d",
		e.Container, e.Total, e.Exclusive)
}

// ResizeError reports that a container keeps the CPUs it has. It is not a
// failure of the node: the request cannot be met while the pod lives.
type ResizeError struct {
	Container string
	From, To  int64 // thousandths of a CPU
	Why       string
}

// Reason is the reason of the pod's condition PodResizePending.
func (*ResizeError) Reason() string { return "Infeasible" }

// Detail is the value of the kubelet's label reason_detail for this.
func (*ResizeError) Detail() string { return "guaranteed_pod_cpu_manager_static_policy" }

func (e *ResizeError) Error() string {
	return fmt.Sprintf("container %q: CPU %dm to %dm: %s", e.Container, e.From, e.To, e.Why)
}
