package stats

import (
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Usage is what a cgroup uses at one time; nil is not known. Sizes are in bytes. It
// is a value of one reading and never changed afterwards. CPU time and faults are
// counters; memory, swap and tasks are levels.
type Usage struct {
	At time.Time

	CPU     *uint64 // nanoseconds since the cgroup began
	CPURate *uint64 // nanocores now, if the source says by itself

	Memory, WorkingSet, RSS *uint64
	Faults, MajorFaults     *uint64
	MemoryLimit             *uint64 // 2^62 or more: none
	Swap, SwapLimit         *uint64

	// Tasks is the number of threads, which is what the node's limit counts.
	Tasks *uint64

	CPUPressure, MemoryPressure, IOPressure *statsapi.PSIStats
}

// less is a - b, or 0. Numbers of one cgroup are read one after the other, so that
// a part can be larger than the whole.
func less(a, b uint64) uint64 { return a - min(a, b) }

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }

// zero is what a pointer points to, or 0.
func zero(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}

// Limit is what Memory is limited to; false if it is not, or that is not known. The
// machine's memory is the limit of the node's Usage.
func (u *Usage) Limit() (bytes uint64, ok bool) {
	if u.MemoryLimit == nil || *u.MemoryLimit >= unlimited {
		return 0, false
	}
	return *u.MemoryLimit, true
}
