package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Usage is the usage of a cgroup at one time. A value is nil if it is not known. Sizes are in
// bytes. A Usage is not changed after it has been read. CPU time and faults are counters; memory,
// swap and tasks are levels.
type Usage struct {
	At time.Time

	CPU     *uint64 // nanoseconds since the cgroup was created
	CPURate *uint64 // nanocores, if the source measures it

	Memory, WorkingSet, RSS *uint64
	Faults, MajorFaults     *uint64
	MemoryLimit             *uint64 // 2^62 or more: none
	Swap, SwapLimit         *uint64

	// Tasks is the number of threads, which the node's limit counts.
	Tasks *uint64

	CPUPressure, MemoryPressure, IOPressure *statsapi.PSIStats
}

// less returns a - b, or 0 if b is larger: values of a cgroup are read one after the other, so a
// part may exceed the whole.
func less(a, b uint64) uint64 { return a - min(a, b) }

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }

// zero returns the value of a pointer, or 0.
func zero(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

// Limit returns the limit of Memory. ok is false if there is no limit, or if the limit is not
// known. The node's Usage is limited by the machine's memory.
func (u *Usage) Limit() (bytes uint64, ok bool) {
	if u.MemoryLimit == nil || *u.MemoryLimit >= unlimited {
		return 0, false
	}
	return *u.MemoryLimit, true
}
