package cgroups

import (
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Unlimited is the value of a limit that is not set.
const Unlimited = -1

// Resources are the values of a cgroup. A field that is nil or empty keeps the
// current value. Copies share pointers and maps; clone and with create new maps,
// and nothing writes through the pointers.
type Resources struct {
	CPUShares *uint64 // relative weight, 2 to 262144; becomes cpu.weight on v2
	CPUQuota  *int64  // microseconds in each period, or Unlimited
	CPUPeriod *uint64 // microseconds
	CPUSet    string  // CPUs, such as 0-3,8
	Memory    *int64  // bytes, or Unlimited
	// MemorySwap is the limit of swap in bytes, not counting Memory, or Unlimited.
	MemorySwap *int64
	Pids       *int64 // processes, or Unlimited
	// Hugepages are limits in bytes by page size in bytes. Sizes of the kernel that
	// are not named keep their limit, or get OtherHugepages if it is set.
	Hugepages      map[int64]int64
	OtherHugepages *int64
	// Unified are values of cgroup v2 by file name, written unchanged. v1 ignores
	// them.
	Unified map[string]string
}

// clone returns a copy of r with maps of its own.
func (r Resources) clone() Resources {
	out := r
	out.Hugepages, out.Unified = maps.Clone(r.Hugepages), maps.Clone(r.Unified)
	return out
}

// with returns r with the fields that o sets. Maps of r are not changed. Hugepages
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

// setIf sets *target to v unless v is nil.
func setIf[T any](target **T, v *T) {
	if v != nil {
		*target = v
	}
}

// Files of cgroup v2 that protect memory from being reclaimed: memory.min
// always, memory.low as long as there is other memory to reclaim.
const (
	memoryMin = "memory.min"
	memoryLow = "memory.low"
)

// keeping returns r with the values of cpu and memory replaced by those of o. Values of cpu and
// memory that o does not set are not set in the result. Ensure writes the result, so cpu and memory
// keep the values that they have: Raise and Lower write new ones, before and after the containers
// are changed.
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

// hugepagesOf returns the bytes of huge pages in a list, by page size. Names that
// spell the same size are summed; others are ignored. The result is never nil.
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

// hugetlbUnits are the units in file names of the hugetlb controller, each 1024 times the previous
// one.
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

// parseHugetlbFile returns the page size, in bytes, in a file's name such as
// hugetlb.2MB.max. It is the inverse of hugetlbSize, and returns false for other
// files and for sizes that may not fit an int64.
func parseHugetlbFile(file, suffix string) (int64, bool) {
	s, ok := strings.CutPrefix(file, "hugetlb.")
	if !ok {
		return 0, false
	}
	if s, ok = strings.CutSuffix(s, suffix); !ok {
		return 0, false
	}
	// From the longest unit on: all of them end in B.
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
