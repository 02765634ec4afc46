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

// Version is that of the kernel's cgroup interface.
type Version int

// The versions; the zero value of a Version is whichever the machine has.
const (
	V1 Version = 1
	V2 Version = 2
)

// A write is one value for one file.
type write struct {
	controller, file, value string
	// optional values are for files that not every kernel has.
	optional bool
}

// writes says what is to be written for r, in an order in which the kernel
// takes it. have is what is there by now, for those values whose order matters.
func (v Version) writes(r Resources, sizes []int64, have level) []write {
	if v == V1 {
		return writesV1(r, sizes, have)
	}
	return writesV2(r, sizes)
}

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

// cfsV1 orders quota and period so that their ratio on the way from one pair
// to the other is between both: the kernel allows no cgroup more than its
// parent, nor less than its children.
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
		if between.cmpCPU(lo) < 0 || between.cmpCPU(hi) > 0 {
			return append(quota, period...)
		}
	}
	return append(period, quota...)
}

// memoryV1 orders the limits so that the one of memory alone is never above
// the one of memory and swap together.
func memoryV1(r Resources, have level) []write {
	var memory, swap []write
	if r.Memory != nil {
		memory = []write{{"memory", "memory.limit_in_bytes", limit(*r.Memory, "-1"), false}}
	}
	if r.MemorySwap != nil {
		sum := int64(Unlimited)
		if *r.MemorySwap >= 0 && r.Memory != nil && *r.Memory >= 0 {
			sum = *r.Memory + *r.MemorySwap
		}
		swap = []write{{"memory", "memory.memsw.limit_in_bytes", limit(sum, "-1"), true}}
		if cmpLimit(sum, have.memorySwap) > 0 {
			return append(swap, memory...)
		}
	}
	return append(memory, swap...)
}

func writesV2(r Resources, sizes []int64) []write {
	var out []write
	add := func(file, value string, optional bool) {
		controller, _, _ := strings.Cut(file, ".")
		out = append(out, write{controller, file, value, optional})
	}
	if r.CPUSet != "" {
		add("cpuset.cpus", r.CPUSet, false)
	}
	if r.CPUShares != nil {
		add("cpu.weight", strconv.FormatUint(WeightOf(*r.CPUShares), 10), false)
	}
	if r.CPUQuota != nil {
		period := uint64(DefaultPeriod)
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

func limit(n int64, unlimited string) string {
	if n < 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}

type hugepageLimit struct{ size, bytes int64 }

// hugepageLimits are the limits for the sizes that the kernel has, smallest
// size first. What is asked for of others, nobody can have.
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

// same reports whether a file that shows have was written want. The kernel rounds
// bytes down to pages.
func (w write) same(have string, page int64) bool {
	have = strings.TrimSpace(have)
	if have == w.value {
		return true
	}
	switch w.controller {
	case "hugetlb":
		if size, ok := parseHugetlbFile(w.file, path.Ext(w.file)); ok {
			page = size
		}
	case "pids":
		page = 1
	case "memory":
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

// cmpLimit compares two limits, of which a negative one is none.
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

// cmpCPU compares how much time two levels leave.
func (l level) cmpCPU(o level) int {
	if l.quota < 0 || o.quota < 0 {
		return cmpLimit(l.quota, o.quota)
	}
	a := new(big.Int).Mul(big.NewInt(l.quota), new(big.Int).SetUint64(o.period))
	b := new(big.Int).Mul(big.NewInt(o.quota), new(big.Int).SetUint64(l.period))
	return a.Cmp(b)
}
