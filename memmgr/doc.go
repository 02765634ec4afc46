// Package memmgr decides from which NUMA nodes containers get their memory, and accounts
// for what is promised of memory and of huge pages of each size. It moves and locks
// nothing: its outcome is a container's cpuset.mems.
//
// It is pure: a [State] goes in, a decision and a new State come out. So a
// scheduler can ask what would become of a pod, and throw the answer away:
//
//	p, err := memmgr.NewStatic(memmgr.Config{Machine: machine, Reserved: reserved})
//	...
//	hints := p.Hints(state, pod, 0)     // for a topology manager to merge
//	next, err := p.Allocate(state, pod, 0, hints.List[0])
//	mems := next.Nodes(pod.UID, "app") // "0-1"
//
// # Policies
//
// A [Policy] decides. [Static] and [None] are those of the kubelet, with its
// results: containers of Guaranteed pods get memory of their own, on as few
// nodes as possible, and a node that serves a container alone serves no
// container of several nodes. Init containers leave their memory to those that
// come after them.
//
// # What is promised
//
// No byte is given twice and none that is reserved is given. A State consists
// of assignments, with true sizes; what nodes have left is derived from them, so
// whatever is given back is there again to the byte, and neither the order of
// decisions nor a restart of the agent makes a difference.
//
// State is saved per pod ([State.EncodePod]). A file that is damaged, of another
// policy or of another machine concerns its pod alone, and
// [Static.Rebuild] makes up for it by what the pod's containers run on. Nothing
// here can keep an agent from starting but a configuration that is wrong.
//
// # What is not
//
// Accounts are of promises. What pods without memory of their own use, and the
// page cache, may still fill a node; the kernel then reclaims, or kills. And as
// in the kubelet, one small container on a node keeps containers of several
// nodes away from it, and what was given neither moves nor changes its size.
//
// The package imports the standard library and package numa.
//
// Tier: stable.
package memmgr
