package cgroups

import "math"

// The bounds of CPU values come from the kernel's documents: cpu.shares from cgroup-v1/cpu,
// cpu.weight from cgroup-v2, and the quota from scheduler/sched-bwc. Weights of cgroup v2 are 1
// to 10000.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds
	// defaultPeriod is the period of quotas in microseconds: 100ms, the kernel's
	// default.
	defaultPeriod = 100000

	sharesPerCPU, milliPerCPU = 1024, 1000
	maxWeight                 = 10000
)

// sharesOf returns the cpu.shares for thousandths of a CPU. Fractions are rounded down. The
// result is at least minShares and at most maxShares, as in the kubelet; zero and negative values
// give minShares.
func sharesOf(milli int64) uint64 {
	if milli <= 0 {
		return minShares
	}
	milli = min(milli, maxShares) // a bound against overflow
	return uint64(min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares))
}

// milliOfShares returns the thousandths of a CPU that correspond to shares, rounded
// up, so that sharesOf of the result is at least shares.
func milliOfShares(shares uint64) int64 {
	if shares < minShares {
		return 0
	}
	shares = min(shares, maxShares)
	return int64((shares*milliPerCPU + sharesPerCPU - 1) / sharesPerCPU)
}

// quotaOf returns the quota in microseconds of a period for thousandths of a CPU. If it returns
// 0, no quota is written; Unlimited would remove a quota. A period of 0 is defaultPeriod. The
// smallest quota is minQuota, below which the kernel refuses it: limits under 10m of a period of
// 100ms become 10m.
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

// weightOf returns the cpu.weight for shares, and 0 for no shares. As in the kubelet (KEP-2254),
// the scale is linear: 2 shares become the weight 1, and 262144 shares the weight 10000. Runtimes
// may use another scale for the containers below; the kernel compares weights only among
// siblings.
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

// sharesOfWeight returns the shares for a cpu.weight, the inverse of weightOf. Both
// round down, so that a weight that is converted twice may be one lower. Weights
// out of range become the nearest in range.
func sharesOfWeight(weight uint64) uint64 {
	weight = min(max(weight, 1), maxWeight)
	return (weight-1)*(maxShares-minShares)/(maxWeight-1) + minShares
}
