package cgroups

import "math"

// Bounds of CPU values: cpu.shares and cpu.weight of the kernel's documents
// cgroup-v1/cpu and cgroup-v2, the quota of scheduler/sched-bwc. Weights of
// cgroup v2 are 1 to 10000.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds
	// defaultPeriod is what quotas are measured in, in microseconds. It is the
	// kernel's default too, 100ms.
	defaultPeriod = 100000

	sharesPerCPU, milliPerCPU = 1024, 1000
	maxWeight                 = 10000
)

// sharesOf are the cpu.shares for thousandths of a CPU. Fractions are rounded
// down, and the result is kept within minShares and maxShares, as the kubelet
// does it. Zero and less is minShares.
func sharesOf(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	milli = min(milli, maxShares) // as large a product as is of use
	return uint64(min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares))
}

// milliOfShares are the thousandths of a CPU that the shares stand for, rounded
// up. Rounding up makes sharesOf of the result give at least the same shares
// again.
func milliOfShares(shares uint64) int64 {
	if shares < minShares {
		return 0
	}
	shares = min(shares, maxShares)
	return int64((shares*milliPerCPU + sharesPerCPU - 1) / sharesPerCPU)
}

// quotaOf is how many microseconds of a period thousandths of a CPU are; 0 for
// none. A period of 0 is defaultPeriod. The least is minQuota, below which the
// kernel refuses a quota, so that limits under 10m of a period of 100ms work
// out as 10m. A zero result means that no quota is to be written, as opposed to
// Unlimited, which takes one away.
func quotaOf(milli int64, period uint64) int64 {
	if milli <= 0 {
		return 0
	}
	if period == 0 {
		period = defaultPeriod
	}
	// Bounding the first factor keeps the product within an int64.
	p := int64(min(period, math.MaxInt64))
	return max(min(milli, math.MaxInt64/p)*p/milliPerCPU, minQuota)
}

// weightOf is the cpu.weight for shares, in a straight line from 2 and 1 to
// 262144 and 10000 (the kubelet's, KEP-2254); 0 for no shares. Runtimes may use
// another curve for the containers below; the kernel compares weights among
// siblings alone.
func weightOf(shares uint64) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= minShares:
		return 1
	case shares >= maxShares:
		return maxWeight
	}
	return 1 + (shares-minShares)*(maxWeight-1)/(maxShares-minShares)
}

// sharesOfWeight are the shares for a cpu.weight. Both weightOf and its inverse
// round down, so that a weight turned into shares and back may come out one
// lower. Weights out of range are taken for the nearest in range.
func sharesOfWeight(weight uint64) uint64 {
	weight = min(max(weight, 1), maxWeight)
	return (weight-1)*(maxShares-minShares)/(maxWeight-1) + minShares
}
