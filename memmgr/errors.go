package memmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// What a [PlacementError] comes down to; ask with errors.Is.
var (
	// ErrNoRoom means that no nodes have enough left.
	ErrNoRoom = errors.New("no NUMA nodes with enough memory")
	// ErrNotPreferred means that the request could be served, but from nodes
	// that are more or others than those which all resources agreed on.
	ErrNotPreferred = errors.New("only NUMA nodes that are not preferred have enough memory")
	// ErrGroups means that some of the hint's nodes serve containers on other
	// nodes than just these, and that nothing larger will do.
	ErrGroups = errors.New("NUMA nodes are in use by containers on other sets of nodes")
)

// PlacementError describes why a request was not served, with all numbers. The
// kubelet reports such as UnexpectedAdmissionError.
type PlacementError struct {
	// Pod is the UID, and Container the name; that is empty for the pod as a
	// whole.
	Pod, Container string
	// Asked is what was requested.
	Asked []Amount
	// Hint is what was passed to Allocate.
	Hint numa.Hint
	// Nodes is what there was on all nodes.
	Nodes []NodeStats

	cause error
}

// listed is how many nodes an error's text has; an event has room for 1024
// bytes.
const listed = 8

// Error has the figures of all nodes, or on large machines of those with the
// most left.
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

// free is what a node has left of the first resource that was asked for.
func (e *PlacementError) free(n NodeStats) uint64 {
	for _, r := range n.Resources {
		if r.Resource == e.Asked[0].Resource {
			return r.Free
		}
	}
	return 0
}

// Unwrap is one of [ErrNoRoom], [ErrNotPreferred] and [ErrGroups].
func (e *PlacementError) Unwrap() error { return e.cause }

// EmptyPodSharedPoolError means that a pod's own memory is all taken by
// containers that keep theirs to themselves, with another container left that
// should share the rest.
type EmptyPodSharedPoolError struct {
	// Pod is the UID, and Container the one that is left with nothing.
	Pod, Container string
	// Resource is what there is none left of.
	Resource Resource
	// Total is what the pod asks for, and Exclusive what containers take of it,
	// in bytes.
	Total, Exclusive uint64
}

// Reason is that of the pod's rejection.
func (*EmptyPodSharedPoolError) Reason() string { return "EmptyPodSharedPoolError" }

func (e *EmptyPodSharedPoolError) Error() string {
	// Up to the colon it is the kubelet's, which tools look for.
	return fmt.Sprintf("pod rejected, sum of exclusive container %s requests equals pod budget, leaving no memory for shared containers: container %s of pod %s; the pod asks for %d bytes, its other containers for %d",
		e.Resource, e.Container, e.Pod, e.Total, e.Exclusive)
}

// InfeasibleError means that a resize will never be possible.
type InfeasibleError struct {
	// Pod is the UID.
	Pod string
	// Detail is the value that the kubelet counts such resizes under.
	Detail string
}

func (e *InfeasibleError) Error() string {
	return fmt.Sprintf("pod %s: resize is infeasible for a Guaranteed pod under the memory manager's Static policy", e.Pod)
}
