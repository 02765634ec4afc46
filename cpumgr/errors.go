package cpumgr

import (
	"fmt"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// NodeCPUs is a number of CPUs on a NUMA node.
type NodeCPUs struct{ Node, CPUs int }

// InsufficientError means that fewer CPUs are free than a container requests.
type InsufficientError struct {
	Requested int
	Free      int        // CPUs
	Cores     int        // number of cores whose CPUs are all free
	Nodes     []NodeCPUs // the free CPUs of each node that has CPUs
}

// insufficient returns the error for a request of n CPUs, with counts that show the
// reason: free CPUs, whole cores, and nodes.
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

// perNode formats the numbers of CPUs per node.
func perNode(nodes []NodeCPUs) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = fmt.Sprintf("%d on node %d", n.CPUs, n.Node)
	}
	return strings.Join(parts, ", ")
}

// SMTAlignmentError means that a request cannot be served with whole cores, as
// [Options].FullPCPUsOnly requires.
type SMTAlignmentError struct {
	Requested int // CPUs
	// PerCore is the number of threads of a core. If the cores differ, it is the smallest number.
	PerCore int
	// Physical reports that the request is a multiple of PerCore, but too few whole cores are
	// free. Available is the number of CPUs in free cores, and Nodes has this number by node.
	Physical  bool
	Available int
	Nodes     []NodeCPUs
}

// misaligned returns the error for a request of n CPUs that cannot be served with whole cores. The
// set whole has the CPUs of the cores that are completely free.
func (l *layout) misaligned(whole numa.CPUSet, n int) error {
	return &SMTAlignmentError{Requested: n, PerCore: l.minThreads, Physical: true, Available: whole.Len(), Nodes: l.freeByNode(whole)}
}

// Reason returns the kubelet's reason for rejecting such a pod.
func (*SMTAlignmentError) Reason() string { return "SMTAlignmentError" }

func (e *SMTAlignmentError) Error() string {
	if e.Physical {
		return fmt.Sprintf("%d CPUs requested in whole cores, but the free cores have %d CPUs (%s)", e.Requested, e.Available, perNode(e.Nodes))
	}
	return fmt.Sprintf("%d CPUs requested; want a multiple of %d, the CPUs of a core", e.Requested, e.PerCore)
}

// EmptyPodSharedPoolError means that containers of a pod with pod-level CPUs use all of them
// exclusively, so that no CPU is left for Container.
type EmptyPodSharedPoolError struct {
	Container string
	Total     int // CPUs of the pod
	Exclusive int // CPUs that are exclusive to containers
}

// Reason returns the kubelet's reason for rejecting such a pod.
func (*EmptyPodSharedPoolError) Reason() string { return "EmptyPodSharedPoolError" }

func (e *EmptyPodSharedPoolError) Error() string {
	// The text up to the colon is the kubelet's: tools search for it.
	return fmt.Sprintf("pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers: container %q; the pod asks for %d CPUs, its other containers for %d",
		e.Container, e.Total, e.Exclusive)
}

// ResizeError means that a resize is rejected and the container keeps its CPUs. The request will
// not succeed later either.
type ResizeError struct {
	Container string
	From, To  int64 // thousandths of a CPU
	Why       string
}

// Reason returns the reason of the pod's condition PodResizePending.
func (*ResizeError) Reason() string { return "Infeasible" }

func (e *ResizeError) Error() string {
	return fmt.Sprintf("container %q: CPU %dm to %dm: %s", e.Container, e.From, e.To, e.Why)
}
