package rank

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Signal names a resource of the node that can run low, as in the kubelet's thresholds.
type Signal string

// The signals, by the kubelet's names.
const (
	SignalMemory            Signal = "memory.available"            // of the node, bytes
	SignalAllocatableMemory Signal = "allocatableMemory.available" // of the cgroup of all pods, bytes
	SignalNodeFs            Signal = "nodefs.available"            // filesystem of pods' files, bytes
	SignalNodeFsInodes      Signal = "nodefs.inodesFree"
	SignalImageFs           Signal = "imagefs.available" // filesystem of images, bytes
	SignalImageFsInodes     Signal = "imagefs.inodesFree"
	SignalContainerFs       Signal = "containerfs.available" // filesystem of writable layers, bytes
	SignalContainerFsInodes Signal = "containerfs.inodesFree"
	SignalPIDs              Signal = "pid.available"
)

// Resources of signals without a name in v1.
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

// fact has the constants of a signal.
type fact struct {
	signal    Signal
	condition v1.NodeConditionType
	resource  v1.ResourceName
}

// facts returns all signals in the order of action: memory first, since it runs out fastest.
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

// Known reports whether this package defines the signal.
func (s Signal) Known() bool { f, _ := s.fact(); return f.signal != "" }

// Condition returns the node condition that is true while the signal is low.
func (s Signal) Condition() v1.NodeConditionType { f, _ := s.fact(); return f.condition }

// Resource returns the resource that the signal is about.
func (s Signal) Resource() v1.ResourceName { f, _ := s.fact(); return f.resource }

// CompareSignals compares signals in the order of action. Unknown signals come last.
func CompareSignals(a, b Signal) int {
	_, i := a.fact()
	_, j := b.fact()
	return i - j
}

// Taint returns the taint for a pressure condition. It returns false for other conditions. In a
// cluster the control plane sets it.
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
