package cgroups

import (
	"cmp"
	"maps"
	"math/big"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Version is the version of the kernel's cgroup interface.
type Version int

// V1 and V2 are the versions; the zero Version means the machine's.
const (
	V1 Version = 1
	V2 Version = 2
)

// A write is one value for one file of a controller. The files are described in the
// kernel's documents cgroup-v1 and cgroup-v2.rst.
type write struct {
	controller, file, value string
	// An optional value is dropped without an error if the kernel lacks the file.
	optional bool
}

// writes returns the writes for r in an order that the kernel accepts. have contains the current
// values, which decide the order of some writes. sizes are the machine's huge page sizes in bytes.
func (v Version) writes(r Resources, sizes []int64, have level) []write {
	if v == V1 {
		return writesV1(r, sizes, have)
	}
	return writesV2(r, sizes)
}

// writesV1 does the work of writes for v1, where quota and period depend on each other, and so do
// memory and swap.
func writesV1(r Resources, sizes []int64, have level) []write {
	var out []write
	add := func(controller, file, value string, optional bool) {
		out = append(out, write{controller, file, value, optional})
	}
	if r.CPUSet != "" {
		add("cpuset", "cpuset.cpus", r.CPUSet, false)
	}
	if r.CPUShares != nil {
		add("cpu", "cpu.shares", strconv.FormatUint(*r.CPUShares, 10), false)
	}
	out = append(out, cfsV1(r, have)...)
	out = append(out, memoryV1(r, have)...)
	if r.Pids != nil {
		add("pids", "pids.max", limit(*r.Pids, "max"), true)
	}
	for _, p := range hugepageLimits(r, sizes) {
		add("hugetlb", "hugetlb."+hugetlbSize(p.size)+".limit_in_bytes", strconv.FormatInt(p.bytes, 10), true)
	}
	return out
}

// cfsV1 orders the writes of quota and period so that their ratio after the first write lies
// between the old and the new one: the kernel checks after each write that a cgroup has no more
// than its parent and no less than its children.
func cfsV1(r Resources, have level) []write {
	var quota, period []write
	if r.CPUQuota != nil {
		quota = []write{{"cpu", "cpu.cfs_quota_us", limit(*r.CPUQuota, "-1"), true}}
	}
	if r.CPUPeriod != nil {
		period = []write{{"cpu", "cpu.cfs_period_us", strconv.FormatUint(*r.CPUPeriod, 10), true}}
	}
	if quota != nil && period != nil && have.period > 0 {
		to := level{quota: *r.CPUQuota, period: *r.CPUPeriod}
		between := level{quota: have.quota, period: to.period} // the period first
		lo, hi := have, to
		if lo.cmpCPU(hi) > 0 {
			lo, hi = hi, lo
		}
		// With the period first the ratio would leave the range; with the quota
		// first it does not.
		if between.cmpCPU(lo) < 0 || between.cmpCPU(hi) > 0 {
			return append(quota, period...)
		}
	}
	return append(period, quota...)
}

// memoryV1 orders the two limits so that the limit of memory is never above the
// limit of memory and swap together: the kernel refuses that (cgroup-v1/memory).
func memoryV1(r Resources, have level) []write {
	var memory, swap []write
	if r.Memory != nil {
		memory = []write{{"memory", "memory.limit_in_bytes", limit(*r.Memory, "-1"), false}}
	}
	if r.MemorySwap != nil {
		// v1 counts memory and swap together, Resources separately.
		sum := int64(Unlimited)
		if *r.MemorySwap >= 0 && r.Memory != nil && *r.Memory >= 0 {
			sum = *r.Memory + *r.MemorySwap
		}
		swap = []write{{"memory", "memory.memsw.limit_in_bytes", limit(sum, "-1"), true}}
		// When growing, the larger limit is written first; when shrinking, the
		// smaller one.
		if cmpLimit(sum, have.memorySwap) > 0 {
			return append(swap, memory...)
		}
	}
	return append(memory, swap...)
}

// writesV2 does the work of writes for v2. Quota and period are one file and swap is separate, so
// that any order would do. The order is fixed for tests and logs.
func writesV2(r Resources, sizes []int64) []write {
	var out []write
	add := func(file, value string, optional bool) {
		// The name of a file begins with the name of its controller.
		controller, _, _ := strings.Cut(file, ".")
		out = append(out, write{controller, file, value, optional})
	}
	if r.CPUSet != "" {
		add("cpuset.cpus", r.CPUSet, false)
	}
	if r.CPUShares != nil {
		add("cpu.weight", strconv.FormatUint(weightOf(*r.CPUShares), 10), false)
	}
	if r.CPUQuota != nil {
		period := uint64(defaultPeriod)
		if r.CPUPeriod != nil {
			period = *r.CPUPeriod
		}
		add("cpu.max", limit(*r.CPUQuota, "max")+" "+strconv.FormatUint(period, 10), true)
	}
	if r.Memory != nil {
		add("memory.max", limit(*r.Memory, "max"), false)
	}
	if r.MemorySwap != nil {
		add("memory.swap.max", limit(*r.MemorySwap, "max"), true)
	}
	if r.Pids != nil {
		add("pids.max", limit(*r.Pids, "max"), true)
	}
	for _, p := range hugepageLimits(r, sizes) {
		add("hugetlb."+hugetlbSize(p.size)+".max", strconv.FormatInt(p.bytes, 10), true)
	}
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		add(file, r.Unified[file], false)
	}
	return out
}

// limit returns n as text. If n is negative, it returns unlimited, which is the version's word
// for no limit.
func limit(n int64, unlimited string) string {
	if n < 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}

// hugepageLimit is a limit for one size of page, both in bytes.
type hugepageLimit struct{ size, bytes int64 }

// hugepageLimits returns the limits for the sizes that the kernel has, smallest
// size first. Other sizes are left out.
func hugepageLimits(r Resources, sizes []int64) []hugepageLimit {
	var out []hugepageLimit
	for _, size := range slices.Sorted(slices.Values(sizes)) {
		bytes, named := r.Hugepages[size]
		if !named {
			if r.OtherHugepages == nil {
				continue
			}
			bytes = *r.OtherHugepages
		}
		out = append(out, hugepageLimit{size, bytes})
	}
	return out
}

// same reports whether the content have is what the file has after the write. The kernel rounds
// bytes down to pages. Without the same rounding here, a limit that is no multiple of a page would
// be written every time.
func (w write) same(have string, page int64) bool {
	have = strings.TrimSpace(have)
	if have == w.value {
		return true
	}
	switch w.controller {
	// Huge pages are rounded to pages of their own size.
	case "hugetlb":
		if size, ok := parseHugetlbFile(w.file, path.Ext(w.file)); ok {
			page = size
		}
	case "pids":
		page = 1
	case "memory":
	// Only numbers are rounded; other values have to be equal.
	default:
		return false
	}
	a, err := parseLimit([]byte(have))
	b, err2 := parseLimit([]byte(w.value))
	if err != nil || err2 != nil {
		return false
	}
	return a == b || a >= 0 && b >= 0 && a/page == b/page
}

// cmpLimit compares two limits. A negative limit means unlimited, and is greater than any other.
func cmpLimit(a, b int64) int {
	switch {
	case a < 0 && b < 0:
		return 0
	case a < 0:
		return 1
	case b < 0:
		return -1
	}
	return cmp.Compare(a, b)
}

// cmpCPU compares the CPU time of two levels. It compares quota/period by
// cross-multiplying, which is exact; the products may exceed 64 bits.
func (l level) cmpCPU(o level) int {
	if l.quota < 0 || o.quota < 0 {
		return cmpLimit(l.quota, o.quota)
	}
	a := new(big.Int).Mul(big.NewInt(l.quota), new(big.Int).SetUint64(o.period))
	b := new(big.Int).Mul(big.NewInt(o.quota), new(big.Int).SetUint64(l.period))
	return a.Cmp(b)
}
