package memmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// The causes of a [PlacementError]. Match them with errors.Is.
var (
	// ErrNoRoom means that no set of nodes has enough memory left.
	ErrNoRoom = errors.New("no NUMA nodes have enough memory")
	// ErrNotPreferred means that only nodes outside the preferred hint have enough
	// memory.
	ErrNotPreferred = errors.New("only NUMA nodes that are not preferred have enough memory")
	// ErrGroups means that nodes of the hint serve containers on other sets of nodes, and that no
	// larger set can be used.
	ErrGroups = errors.New("NUMA nodes are in use by containers on other sets of nodes")
)

// PlacementError says why a request failed, with the amounts of each node. The kubelet reports
// such an error as UnexpectedAdmissionError.
type PlacementError struct {
	// Pod is the UID of the pod, and Container is the name of the container. Container is "" if
	// the request is for the pod as a whole.
	Pod, Container string
	// Asked has the bytes that were requested of each resource.
	Asked []Amount
	// Hint is the hint passed to Allocate.
	Hint numa.Hint
	// Nodes has what each NUMA node had at that time.
	Nodes []NodeStats

	cause error
}

// listed limits the nodes in an error's text, since an event may have 1024 bytes.
const listed = 8

// Error returns the cause with the requested bytes and the amounts of each node. It lists at most
// 8 nodes, those with the most memory left, and the number of the others.
func (e *PlacementError) Error() string {
	var b strings.Builder
	if e.Container != "" {
		fmt.Fprintf(&b, "container %s of ", e.Container)
	}
	fmt.Fprintf(&b, "pod %s: %s: asked for", e.Pod, e.cause)
	for i, a := range e.Asked {
		fmt.Fprintf(&b, "%s %s %d", comma(i), a.Resource, a.Bytes)
	}
	if e.Hint.Nodes != 0 {
		fmt.Fprintf(&b, " on nodes %s", e.Hint.Nodes)
	}
	nodes := e.Nodes
	if len(nodes) > listed {
		nodes = slices.Clone(nodes)
		slices.SortStableFunc(nodes, func(x, y NodeStats) int { return cmp.Compare(e.free(y), e.free(x)) })
		nodes = nodes[:listed]
	}
	for _, n := range nodes {
		fmt.Fprintf(&b, "; node %d", n.ID)
		if n.Assignments > 0 {
			fmt.Fprintf(&b, " (serves %s)", n.Group)
		}
		count := 0
		for _, r := range n.Resources {
			if e.asks(r.Resource) {
				fmt.Fprintf(&b, "%s %s free %d, reserved %d of %d", comma(count), r.Resource, r.Free, r.Reserved, r.Total)
				count++
			}
		}
	}
	if more := len(e.Nodes) - len(nodes); more > 0 {
		fmt.Fprintf(&b, "; %d more nodes have no more", more)
	}
	return b.String()
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

func (e *PlacementError) asks(r Resource) bool { return of(e.Asked, r) > 0 }

// free returns how much of the first requested resource is free on a node.
func (e *PlacementError) free(n NodeStats) uint64 {
	for _, r := range n.Resources {
		if r.Resource == e.Asked[0].Resource {
			return r.Free
		}
	}
	return 0
}

// Unwrap returns [ErrNoRoom], [ErrNotPreferred] or [ErrGroups].
func (e *PlacementError) Unwrap() error { return e.cause }

// EmptyPodSharedPoolError means that containers with exclusive memory use all of a pod's
// pod-level memory, so that none is left for another container of the pod.
type EmptyPodSharedPoolError struct {
	// Pod is the UID, and Container the name of the container without memory.
	Pod, Container string
	// Resource is the resource that is used up.
	Resource Resource
	// Total is the pod-level request, and Exclusive the amount that containers have exclusively,
	// in bytes.
	Total, Exclusive uint64
}

// Reason returns the kubelet's reason for rejecting such a pod.
func (*EmptyPodSharedPoolError) Reason() string { return "EmptyPodSharedPoolError" }

func (e *EmptyPodSharedPoolError) Error() string {
	// The text up to the colon is the kubelet's: tools search for it.
	return fmt.Sprintf("pod rejected, sum of exclusive container %s requests equals pod budget, leaving no memory for shared containers: container %s of pod %s; the pod asks for %d bytes, its other containers for %d",
		e.Resource, e.Container, e.Pod, e.Total, e.Exclusive)
}

// InfeasibleError means that a resize will never succeed.
type InfeasibleError struct {
	// Pod is the UID of the pod.
	Pod string
	// Detail is the value of the kubelet's metric label for such resizes.
	Detail string
}

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("pod %s: resize is infeasible for a Guaranteed pod under the memory manager's Static policy", e.Pod)
}
