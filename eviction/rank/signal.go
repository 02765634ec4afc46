package rank

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Signal names a figure of the node that can run low.
type Signal string

// The signals, by the kubelet's names.
const (
	SignalMemory            Signal = "memory.available"            // of the node, bytes
	SignalAllocatableMemory Signal = "allocatableMemory.available" // of the cgroup of all pods, bytes
	SignalNodeFs            Signal = "nodefs.available"            // where the agent keeps pods' files, bytes
	SignalNodeFsInodes      Signal = "nodefs.inodesFree"
	SignalImageFs           Signal = "imagefs.available" // where the runtime keeps images, bytes
	SignalImageFsInodes     Signal = "imagefs.inodesFree"
	SignalContainerFs       Signal = "containerfs.available" // where it keeps what containers write, bytes
	SignalContainerFsInodes Signal = "containerfs.inodesFree"
	SignalPIDs              Signal = "pid.available"
)

// The resources that signals speak of and v1 has no name for.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

// fact is what is fixed about a signal.
type fact struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
}

// facts are in the order in which signals are acted upon: memory first, as it
// runs out fastest.
func facts() [9]fact {
	return [...]fact{
		{SignalMemory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{SignalAllocatableMemory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{SignalNodeFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{SignalNodeFsInodes, v1.NodeDiskPressure, ResourceInodes},
		{SignalImageFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{SignalImageFsInodes, v1.NodeDiskPressure, ResourceInodes},
		{SignalContainerFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{SignalContainerFsInodes, v1.NodeDiskPressure, ResourceInodes},
		{SignalPIDs, v1.NodePIDPressure, ResourcePIDs},
	}
}

func (s Signal) fact() (fact, int) {
	all := facts()
	i := slices.IndexFunc(all[:], func(f fact) bool { return f.signal == s })
	if i < 0 {
		return fact{}, len(all)
	}
	return all[i], i
}

// Known reports whether there is such a signal.
func (s Signal) Known() bool { f, _ := s.fact(); return f.signal != "" }

// Condition is the condition of a node on which the signal is low.
func (s Signal) Condition() v1.NodeConditionType { f, _ := s.fact(); return f.condition }

// Resource is what runs low.
func (s Signal) Resource() v1.ResourceName { f, _ := s.fact(); return f.resource }

// CompareSignals orders signals as they are acted upon. Unknown ones come last.
func CompareSignals(a, b Signal) int {
	_, i := a.fact()
	_, j := b.fact()
	return i - j
}

// Taint is what keeps pods off a node with that condition, and whether the
// condition is one of pressure. In a cluster the control plane adds it.
func Taint(c v1.NodeConditionType) (v1.Taint, bool) {
	t := v1.Taint{Effect: v1.TaintEffectNoSchedule}
	switch c {
	case v1.NodeMemoryPressure:
		t.Key = v1.TaintNodeMemoryPressure
	case v1.NodeDiskPressure:
		t.Key = v1.TaintNodeDiskPressure
	case v1.NodePIDPressure:
		t.Key = v1.TaintNodePIDPressure
	default:
		return v1.Taint{}, false
	}
	return t, true
}
