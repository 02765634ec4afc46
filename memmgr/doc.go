// Package memmgr decides from which NUMA nodes containers get their memory, and accounts for the
// allocated memory and huge pages of each size. It neither moves nor locks memory: its result is
// the cpuset.mems of a container.
//
// Functions have no side effects: they take a [State] and return a decision and a new State. A
// scheduler can compute the placement of a pod and discard the result:
//
//	p, err := memmgr.NewStatic(memmgr.Config{Machine: machine, Reserved: reserved})
//	...
//	hints := p.Hints(state, pod, 0)     // for a topology manager to merge
//	next, err := p.Allocate(state, pod, 0, hints.List[0])
//	mems := next.Nodes(pod.UID, "app") // "0-1"
//
// # Policies
//
// [Static] and [None] are the kubelet's policies, with the kubelet's results. Containers of
// Guaranteed pods get memory of their own, on as few nodes as possible. A node serves either
// containers that use only this node, or containers that use several. Init containers leave their
// memory to later containers. Other policies implement [Policy].
//
// # Guarantees
//
// No memory is allocated twice, and reserved memory is never allocated. A State consists of
// assignments with exact sizes, from which the free memory is computed. So a release frees the
// exact amount, and the free memory depends neither on the order of earlier decisions nor on a
// restart of the agent.
//
// State is saved per pod ([State.EncodePod]). A file that is damaged, or belongs to another
// policy or machine, affects only its pod, and [Static.Rebuild] restores the assignment from the
// cpusets of the pod's containers. Only an invalid configuration is an error at the start.
//
// # Limits
//
// Allocations are accounting only. Pods without allocated memory, and the page cache, can still
// fill a NUMA node; then the kernel reclaims memory or kills processes. As in the kubelet, one
// small container on a node excludes containers that span several nodes from it. An allocation
// neither moves nor changes its size.
//
// The package imports only the standard library and package numa.
//
// Tier: beta.
package memmgr
