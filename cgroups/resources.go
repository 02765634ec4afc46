package cgroups

import (
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Unlimited is no limit, where a limit may be.
const Unlimited = -1

// Resources are what the processes in a cgroup may use. A field that is nil,
// or empty, is left as it is. Pointers and maps are shared by copies; clone and
// with make new maps, and nothing writes through the pointers.
type Resources struct {
	CPUShares *uint64 // relative weight, 2 to 262144; becomes cpu.weight on v2
	CPUQuota  *int64  // microseconds in each period, or Unlimited
	CPUPeriod *uint64 // microseconds
	CPUSet    string  // CPUs, such as 0-3,8
	Memory    *int64  // bytes, or Unlimited
	// MemorySwap is how many bytes of swap there are beyond Memory, or
	// Unlimited.
	MemorySwap *int64
	Pids       *int64 // processes, or Unlimited
	// Hugepages are bytes for each size of page, in bytes. Sizes that the
	// kernel has and that are not named are left as they are, unless
	// OtherHugepages is set: then they get that many.
	Hugepages      map[int64]int64
	OtherHugepages *int64
	// Unified are values of cgroup v2 by file, written as they are. On v1 they
	// are ignored.
	Unified map[string]string
}

// clone returns a copy of r with maps of its own.
func (r Resources) clone() Resources {
	out := r
	out.Hugepages, out.Unified = maps.Clone(r.Hugepages), maps.Clone(r.Unified)
	return out
}

// with is r with what o says otherwise. Maps of r are not changed. Hugepages
// are replaced as a whole, Unified file by file.
func (r Resources) with(o Resources) Resources {
	out := r.clone()
	setIf(&out.CPUShares, o.CPUShares)
	setIf(&out.CPUQuota, o.CPUQuota)
	setIf(&out.CPUPeriod, o.CPUPeriod)
	setIf(&out.Memory, o.Memory)
	setIf(&out.MemorySwap, o.MemorySwap)
	setIf(&out.Pids, o.Pids)
	setIf(&out.OtherHugepages, o.OtherHugepages)
	if o.CPUSet != "" {
		out.CPUSet = o.CPUSet
	}
	if o.Hugepages != nil {
		out.Hugepages = maps.Clone(o.Hugepages)
	}
	for file, value := range o.Unified {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[file] = value
	}
	return out
}

// setIf sets *to unless v is nil, which means "not named".
func setIf[T any](to **T, v *T) {
	if v != nil {
		*to = v
	}
}

// Files of cgroup v2 that protect memory from being reclaimed: memory.min
// always, memory.low as long as there is other memory to reclaim.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// keeping is r with what o says of cpu and memory, and with nothing of what o
// does not say. Ensure writes the result: new values of cpu and memory have to
// wait for Raise and Lower, in step with the containers.
func (r Resources) keeping(o Resources) Resources {
	out := r.clone()
	out.CPUShares, out.CPUQuota, out.CPUPeriod = o.CPUShares, o.CPUQuota, o.CPUPeriod
	out.Memory, out.MemorySwap = o.Memory, o.MemorySwap
	for _, file := range []string{memoryMin, memoryLow} {
		delete(out.Unified, file)
		if value, ok := o.Unified[file]; ok {
			out = out.with(Resources{Unified: map[string]string{file: value}})
		}
	}
	return out
}

// hugepagesOf are the bytes of huge pages in a list, by size of page. Names
// that spell the same size are summed; what is no size is ignored. The result
// is never nil.
func hugepagesOf(list v1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, q := range list {
		if size, ok := pageSize(name); ok {
			out[size] += q.Value()
		}
	}
	return out
}

// pageSize returns the size in bytes in the name of a resource such as
// hugepages-2Mi, and false for other names.
func pageSize(name v1.ResourceName) (int64, bool) {
	s, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := quantity.Parse(s)
	return q.Value(), err == nil && q.Value() > 0
}

// hugetlbUnits are how files of the hugetlb controller count, each 1024 of the
// one before.
var hugetlbUnits = []string{"B", "KB", "MB", "GB"}

// hugetlbSize writes a page size as the files of the hugetlb controller have
// it: 2MB for 2097152. It uses the largest unit that leaves a whole number, as
// the kernel does.
func hugetlbSize(size int64) string {
	n := 0
	for size%1024 == 0 && size > 0 && n < len(hugetlbUnits)-1 {
		size, n = size/1024, n+1
	}
	return strconv.FormatInt(size, 10) + hugetlbUnits[n]
}

// parseHugetlbFile returns the page size in a file's name such as
// hugetlb.2MB.max, in bytes. It is the inverse of hugetlbSize, and false for
// other files and for sizes that an int64 may not hold.
func parseHugetlbFile(file, suffix string) (int64, bool) {
	s, ok := strings.CutPrefix(file, "hugetlb.")
	if !ok {
		return 0, false
	}
	if s, ok = strings.CutSuffix(s, suffix); !ok {
		return 0, false
	}
	// From the longest unit on: every one of them ends in B.
	for n := len(hugetlbUnits) - 1; n >= 0; n-- {
		if digits, ok := strings.CutSuffix(s, hugetlbUnits[n]); ok {
			size, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || size <= 0 || size > 1<<40>>(10*n) {
				return 0, false
			}
			return size << (10 * n), true
		}
	}
	return 0, false
}
