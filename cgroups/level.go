package cgroups

import (
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// A level is the CPU and memory values of a cgroup, in the terms of its version.
// Resizes compare two levels: the order of the writes depends on which values grow.
type level struct {
	share      uint64 // cpu.shares on v1, cpu.weight on v2
	quota      int64  // microseconds of period, or Unlimited
	period     uint64
	memory     int64 // bytes, or Unlimited
	memorySwap int64 // v1: limit of memory and swap together
	min, low   int64 // v2: bytes that are protected
}

// noLimits is the level of a new cgroup.
var noLimits = level{quota: Unlimited, period: defaultPeriod, memory: Unlimited, memorySwap: Unlimited}

// levelOf returns the level of a cgroup with the values r. A limit that is not set in r is
// unlimited. Values of Unified that are not numbers count as 0.
func (v Version) levelOf(r Resources) level {
	out := noLimits
	if r.CPUShares != nil {
		out.share = *r.CPUShares
		if v == V2 {
			out.share = weightOf(out.share)
		}
	}
	if r.CPUQuota != nil {
		out.quota = *r.CPUQuota
	}
	if r.CPUPeriod != nil {
		out.period = *r.CPUPeriod
	}
	if r.Memory != nil {
		out.memory = *r.Memory
	}
	out.min, _ = strconv.ParseInt(r.Unified[memoryMin], 10, 64)
	out.low, _ = strconv.ParseInt(r.Unified[memoryLow], 10, 64)
	return out
}

// A part is the limit or the request of a resource. A resize changes one part at a time.
type part struct {
	resource v1.ResourceName
	limit    bool // the limit; if false, the request
}

// partsUp returns the parts of a resource that are larger in want than in have, the limit before
// the request. In the other order the request would exceed the limit for a moment.
func partsUp(have, want level, name v1.ResourceName) []part {
	return changed(have, want, 1, part{name, true}, part{name, false})
}

// partsDown returns the parts of a resource that are smaller in want than in have, the request
// before the limit.
func partsDown(have, want level, name v1.ResourceName) []part {
	return changed(have, want, -1, part{name, false}, part{name, true})
}

// changed returns the parts whose value changes in the direction of sign. With 1 these are the
// parts that grow, with -1 the parts that shrink. The order of parts is kept.
func changed(have, want level, sign int, parts ...part) []part {
	var out []part
	for _, p := range parts {
		if want.compare(have, p) == sign {
			out = append(out, p)
		}
	}
	return out
}

// compare compares part p of l with part p of o, like cmp.Compare. Memory is compared in pages: the
// kernel shows a value rounded down to pages, which would look like a change at every comparison.
// A page has 4 KiB, and up to 64 KiB on arm64.
func (l level) compare(o level, p part) int {
	page := int64(os.Getpagesize())
	switch {
	case p.resource == v1.ResourceCPU && p.limit:
		return l.cmpCPU(o)
	case p.resource == v1.ResourceCPU:
		// The bound keeps odd values within an int64.
		return cmpLimit(int64(min(l.share, maxShares)), int64(min(o.share, maxShares)))
	case p.resource == v1.ResourceMemory && p.limit:
		if l.memory >= 0 && o.memory >= 0 && l.memory/page == o.memory/page {
			return 0
		}
		return cmpLimit(l.memory, o.memory)
	// The class decides which of the two files protects memory; a pod has only one
	// of them.
	case p.resource == v1.ResourceMemory:
		return cmpLimit((l.min+l.low)/page, (o.min+o.low)/page)
	}
	return 0
}

// part returns the values of r that belong to p. If r has no limit or no protection, the result
// has the value for none, so that a resize removes the old value; a nil field would keep it.
func (r Resources) part(p part) Resources {
	var out Resources
	switch p {
	case part{v1.ResourceCPU, true}:
		out.CPUQuota, out.CPUPeriod = r.CPUQuota, r.CPUPeriod
		if out.CPUQuota == nil {
			out.CPUQuota = ptr(int64(Unlimited))
		}
	case part{v1.ResourceCPU, false}:
		out.CPUShares = r.CPUShares
	case part{v1.ResourceMemory, true}:
		out.Memory, out.MemorySwap = r.Memory, r.MemorySwap
		if out.Memory == nil {
			out.Memory = ptr(int64(Unlimited))
		}
	case part{v1.ResourceMemory, false}:
		out.Unified = map[string]string{memoryMin: "0", memoryLow: "0"}
		for file := range out.Unified {
			if value, ok := r.Unified[file]; ok {
				out.Unified[file] = value
			}
		}
	}
	return out
}

// adopted returns the values of want for a cgroup whose last written values are not known, as
// after a restart. It leaves out limits, and memory protection, that would shrink: the containers
// may still have the old values until they are resized. A cgroup without a limit gets the limit
// at once, since a resize never begins without a limit. all reports that nothing was left out.
// Otherwise Ensure records nothing as applied, and calls adopted again the next time.
func (v Version) adopted(have level, want Resources) (give Resources, all bool) {
	to := v.levelOf(want)
	give, all = want.clone(), true
	if have.quota >= 0 && to.compare(have, part{v1.ResourceCPU, true}) < 0 {
		give.CPUQuota, give.CPUPeriod, all = nil, nil, false
	}
	if have.memory >= 0 && to.compare(have, part{v1.ResourceMemory, true}) < 0 {
		give.Memory, give.MemorySwap, all = nil, nil, false
	}
	if to.compare(have, part{v1.ResourceMemory, false}) < 0 {
		delete(give.Unified, memoryMin)
		delete(give.Unified, memoryLow)
		all = false
	}
	return give, all
}
