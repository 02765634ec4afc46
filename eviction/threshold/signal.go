package threshold

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Signal names a figure of the node that can run low.
type Signal string

// The signals, by the kubelet's names.
const (
	Memory            Signal = "memory.available"            // of the node, bytes
	AllocatableMemory Signal = "allocatableMemory.available" // of the cgroup of all pods, bytes
	NodeFs            Signal = "nodefs.available"            // where the agent keeps pods' files, bytes
	NodeFsInodes      Signal = "nodefs.inodesFree"
	ImageFs           Signal = "imagefs.available" // where the runtime keeps images, bytes
	ImageFsInodes     Signal = "imagefs.inodesFree"
	ContainerFs       Signal = "containerfs.available" // where it keeps what containers write, bytes
	ContainerFsInodes Signal = "containerfs.inodesFree"
	PIDs              Signal = "pid.available"
)

// The resources that signals speak of and v1 has no name for.
const (
	Inodes v1.ResourceName = "inodes"
	Pids   v1.ResourceName = "pids"
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
		{Memory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{AllocatableMemory, v1.NodeMemoryPressure, v1.ResourceMemory},
		{NodeFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{NodeFsInodes, v1.NodeDiskPressure, Inodes},
		{ImageFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{ImageFsInodes, v1.NodeDiskPressure, Inodes},
		{ContainerFs, v1.NodeDiskPressure, v1.ResourceEphemeralStorage},
		{ContainerFsInodes, v1.NodeDiskPressure, Inodes},
		{PIDs, v1.NodePIDPressure, Pids},
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

// Compare orders signals as they are acted upon. Unknown ones come last.
func Compare(a, b Signal) int {
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
