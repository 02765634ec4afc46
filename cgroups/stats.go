package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Stats is the usage of a cgroup with all cgroups below it. Each file is read at a
// slightly different time.
type Stats struct {
	// Path is the path below the mount points.
	Path   string
	CPU    CPUStats
	Memory MemoryStats
	// Pids is the number of processes and threads.
	Pids int64
	// Hugepages is the usage in bytes by page size in bytes.
	Hugepages map[int64]int64
	// Pressure is nil if the kernel has no PSI.
	Pressure *PressureStats
}

// CPUStats is CPU time since the cgroup was created. The values only grow; a cgroup
// that was removed and created again starts at 0.
type CPUStats struct {
	Usage, User, System time.Duration
	// Periods is the number of quota periods in which the cgroup was active. Throttled is the number
	// of these periods in which the quota was used up. ThrottledTime is the time that tasks waited
	// for the next period.
	Periods, Throttled uint64
	ThrottledTime      time.Duration
}

// MemoryStats is usage in bytes, and events since the cgroup was created.
type MemoryStats struct {
	Usage int64
	// WorkingSet is Usage minus the inactive page cache, which the kernel can
	// easily free. Eviction and usage metrics use it.
	WorkingSet                  int64
	RSS                         int64 // anonymous memory
	Limit                       int64 // Unlimited if there is none
	Swap                        int64
	PageFaults, MajorPageFaults uint64
	Events                      MemoryEvents
}

// MemoryEvents counts how often a cgroup reached its limits (memory.events of the
// kernel's cgroup-v2 document). On v1, Max is memory.failcnt, and only Max and
// OOMKill are counted. On v2 events of the cgroups below are included.
type MemoryEvents struct {
	Low, High, Max, OOM, OOMKill uint64
}

// PressureStats is the time for which tasks waited, by resource.
type PressureStats struct{ CPU, Memory, IO Pressure }

// Stats reads the usage of the pod. It returns ErrNotExist if the pod has no
// cgroup, and ErrUnsupported with Config.NoPodCgroups.
func (m *Manager) Stats(ctx context.Context, uid types.UID) (Stats, error) {
	d, cgroup, err := m.locate(ctx, uid)
	if err != nil {
		return Stats{}, err
	}
	if d == nil {
		return Stats{}, fmt.Errorf("cgroup of pod %s: %w", uid, ErrUnsupported)
	}
	return d.stats(ctx, cgroup)
}

// TierStats reads the usage of all pods of a class; for Guaranteed, of all pods.
func (m *Manager) TierStats(ctx context.Context, class v1.PodQOSClass) (Stats, error) {
	return m.statsAt(ctx, m.tree.tier(class))
}

// StatsOf reads the usage of any cgroup by name; the root has the usage of the
// machine.
func (m *Manager) StatsOf(ctx context.Context, n Name) (Stats, error) { return m.statsAt(ctx, n) }

// statsAt reads a cgroup by name, in the form of the configured driver.
func (m *Manager) statsAt(ctx context.Context, n Name) (Stats, error) {
	if m.cfg.NoPodCgroups {
		return Stats{}, fmt.Errorf("cgroup %s: %w", n.Cgroupfs(), ErrUnsupported)
	}
	d, err := m.start(ctx)
	if err != nil {
		return Stats{}, err
	}
	cgroup, err := m.literal(n)
	if err != nil {
		return Stats{}, err
	}
	return d.stats(ctx, cgroup)
}

// reader reads the files of one cgroup and collects the errors, so that a bad file
// costs only its value. A missing file counts as empty: kernels differ, and the
// root lacks many files. It is used by one goroutine.
type reader struct {
	*driver
	ctx    context.Context
	cgroup string
	errs   []error
}

// number returns the number in a file, 0 if it is missing or unreadable.
func (r *reader) number(controller, name string) int64 {
	n, err := r.numberOr(r.ctx, controller, r.cgroup, name, 0)
	r.errs = append(r.errs, err)
	return n
}

// flat returns the keys and values of a file such as cpu.stat; nil if it is missing
// or unreadable.
func (r *reader) flat(controller, name string) kernel.Table {
	dir, ok := r.on.dir(controller, r.cgroup)
	if !ok {
		return nil
	}
	data, err := r.read(r.ctx, dir+"/"+name)
	if err != nil && !gone(err) {
		r.errs = append(r.errs, err)
	}
	return kernel.ParseTable(data)
}

// stats reads all statistics of a cgroup. With an error, the values that could
// be read are returned as well.
func (d *driver) stats(ctx context.Context, cgroup string) (Stats, error) {
	var lacks *ControllerError
	// Missing files count as 0, so that a missing cgroup would look like an idle
	// one. A missing controller is no reason to return nothing.
	if err := d.exists(ctx, cgroup); err != nil && !errors.As(err, &lacks) {
		return Stats{}, err
	}
	r := &reader{driver: d, ctx: ctx, cgroup: cgroup}
	out := Stats{Path: cgroup, Hugepages: map[int64]int64{}}
	usage, max := ".usage_in_bytes", "memory.limit_in_bytes"
	if d.on.version == V2 {
		out.CPU, out.Memory = r.cpuV2(), r.memoryV2()
		out.Pressure = r.pressure()
		usage, max = ".current", "memory.max"
	} else {
		out.CPU, out.Memory = r.cpuV1(), r.memoryV1()
	}
	limit, err := d.numberOr(ctx, "memory", cgroup, max, Unlimited)
	out.Memory.Limit, r.errs = limit, append(r.errs, err)
	out.Pids = r.number("pids", "pids.current")
	for _, size := range d.on.pages {
		out.Hugepages[size] = r.number("hugetlb", "hugetlb."+hugetlbSize(size)+usage)
	}
	return out, errors.Join(r.errs...)
}

// micro returns n microseconds, or the longest Duration.
func micro(n uint64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}

// bytes returns n, or the largest int64.
func bytes(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// cpuV2 reads cpu.stat. Its first three values exist without the cpu controller.
func (r *reader) cpuV2() CPUStats {
	s := r.flat("cpu", "cpu.stat")
	return CPUStats{
		Usage: micro(s["usage_usec"]), User: micro(s["user_usec"]), System: micro(s["system_usec"]),
		Periods: s["nr_periods"], Throttled: s["nr_throttled"], ThrottledTime: micro(s["throttled_usec"]),
	}
}

// cpuV1 reads nanoseconds (cpuacct.usage, throttled_time) and ticks of USER_HZ
// (cpuacct.stat), which are coarser: User and System may not add up to Usage.
func (r *reader) cpuV1() CPUStats {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go knows
	s, used := r.flat("cpu", "cpu.stat"), r.flat("cpuacct", "cpuacct.stat")
	ticks := func(n uint64) time.Duration { return time.Duration(min(n, math.MaxInt64/uint64(tick))) * tick }
	return CPUStats{
		Usage: time.Duration(r.number("cpuacct", "cpuacct.usage")),
		User:  ticks(used["user"]), System: ticks(used["system"]),
		Periods: s["nr_periods"], Throttled: s["nr_throttled"],
		ThrottledTime: time.Duration(bytes(s["throttled_time"])),
	}
}

// memoryV2 reads bytes and page faults of the cgroup and all below it.
func (r *reader) memoryV2() MemoryStats {
	s, ev := r.flat("memory", "memory.stat"), r.flat("memory", "memory.events")
	out := MemoryStats{
		Usage: r.number("memory", "memory.current"), RSS: bytes(s["anon"]),
		Swap:       r.number("memory", "memory.swap.current"),
		PageFaults: s["pgfault"], MajorPageFaults: s["pgmajfault"],
		Events: memoryEvents(ev),
	}
	// The two files are read at different times, so that the difference may be
	// negative.
	out.WorkingSet = max(out.Usage-bytes(s["inactive_file"]), 0)
	return out
}

// memoryEvents returns the counters of memory.events; missing ones are 0.
func memoryEvents(ev kernel.Table) MemoryEvents {
	return MemoryEvents{Low: ev["low"], High: ev["high"], Max: ev["max"], OOM: ev["oom"], OOMKill: ev["oom_kill"]}
}

// memoryV1 reads the memory usage on v1. It uses the keys total_* of memory.stat, since the other
// keys do not include the cgroups below.
func (r *reader) memoryV1() MemoryStats {
	s := r.flat("memory", "memory.stat")
	out := MemoryStats{
		Usage: r.number("memory", "memory.usage_in_bytes"), RSS: bytes(s["total_rss"]), Swap: bytes(s["total_swap"]),
		PageFaults: s["total_pgfault"], MajorPageFaults: s["total_pgmajfault"],
		Events: MemoryEvents{
			Max:     uint64(max(r.number("memory", "memory.failcnt"), 0)),
			OOMKill: r.flat("memory", "memory.oom_control")["oom_kill"],
		},
	}
	out.WorkingSet = max(out.Usage-bytes(s["total_inactive_file"]), 0)
	return out
}

// pressure returns nil on kernels without PSI or with PSI switched off: then the
// files of the root are missing or cannot be opened.
func (r *reader) pressure() *PressureStats {
	var out PressureStats
	for file, into := range map[string]*Pressure{
		"cpu.pressure": &out.CPU, "memory.pressure": &out.Memory, "io.pressure": &out.IO,
	} {
		dir, _ := r.on.dir("", r.cgroup)
		data, err := r.read(r.ctx, dir+"/"+file)
		// One file stands for all three: the kernel has all or none.
		if noPressure(err) {
			return nil
		}
		if err == nil {
			*into, err = parsePressure(data)
		}
		r.errs = append(r.errs, err)
	}
	return &out
}

// noPressure reports whether an error of opening or reading a PSI file means that
// the kernel lacks PSI or has it switched off (boot parameter psi=0).
func noPressure(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotSupported)
}
