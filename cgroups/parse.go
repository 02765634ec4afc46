package cgroups

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/kernel"
)

// unlimitedV1 is the smallest value that v1 shows for "no memory limit": the
// maximum of the kernel's page counter for pages of 64 KiB, the largest on the
// architectures that Go supports.
const unlimitedV1 = math.MaxInt64 >> 17 << 17

// parseLimit parses a limit of bytes, processes or CPU quota. It returns Unlimited for the word
// max and for -1, which v1 shows for an unset CPU quota.
func parseLimit(data []byte) (int64, error) {
	s := strings.TrimSpace(string(data))
	if s == "max" || s == "-1" {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("limit %q: want a number or max", s)
	}
	if n >= unlimitedV1 {
		return Unlimited, nil
	}
	return int64(n), nil
}

// parseCPUMax reads cpu.max: a quota, or max, and the period. Both are in
// microseconds; no limit is Unlimited.
func parseCPUMax(data []byte) (quota int64, period uint64, err error) {
	f := strings.Fields(string(data))
	if len(f) != 2 {
		return 0, 0, fmt.Errorf("cpu.max %q: want two fields", strings.TrimSpace(string(data)))
	}
	if quota, err = parseLimit([]byte(f[0])); err != nil {
		return 0, 0, fmt.Errorf("cpu.max: %w", err)
	}
	if period, err = strconv.ParseUint(f[1], 10, 64); err != nil || period == 0 {
		return 0, 0, fmt.Errorf("cpu.max: period %q: want a positive number", f[1])
	}
	return quota, period, nil
}

// Pressure has the times for which tasks waited for a resource (PSI, the kernel's accounting/psi
// document).
type Pressure struct {
	// Some is the time in which at least one task waited, Full the time in which all tasks that were
	// not idle waited. Full of cpu is zero for the whole machine, where the kernel does not define
	// it.
	Some, Full Stall
}

// Stall is a share of time, in percent over the last 10, 60 and 300 seconds, and
// its total since the cgroup was created.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// pressure converts the kernel's times.
func pressure(p kernel.Pressure) Pressure {
	stall := func(s kernel.Stall) Stall { return Stall{s.Avg10, s.Avg60, s.Avg300, s.Duration()} }
	return Pressure{stall(p.Some), stall(p.Full)}
}
