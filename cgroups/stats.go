package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strings"
	"time"

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

// stats reads all statistics of a cgroup. With an error, the values that could
// be read are returned as well, unless a file does not answer (ErrNoAnswer).
func (d *driver) stats(ctx context.Context, cgroup string) (Stats, error) {
	var lacks *ControllerError
	// Missing files count as 0, so that a missing cgroup would look like an idle
	// one. A missing controller is no reason to return nothing.
	if err := d.exists(ctx, cgroup); err != nil && !errors.As(err, &lacks) {
		return Stats{}, err
	}
	var late Stats
	err := d.together(ctx, func(d *driver) error {
		g := kernel.GroupIn(ctx, d.in, kernel.Reads(d.readNamed), cgroup, d.on.version == V2)
		late = Stats{
			Path: cgroup, CPU: cpuStats(g.CPU()), Memory: memoryStats(g), Pids: number(g.Threads()),
			Hugepages: map[int64]int64{}, Pressure: pressureStats(g),
		}
		for _, size := range d.on.pages {
			late.Hugepages[size] = number(g.HugePages(hugetlbSize(size)))
		}
		return g.Err()
	})
	if errors.Is(err, ErrNoAnswer) {
		return Stats{}, err // late may still be written
	}
	return late, err
}

// readNamed reads a file by a name that begins with its controller on v1.
func (d *driver) readNamed(name string) ([]byte, error) {
	if d.on.version == V2 {
		return d.fs.Read(path.Join(d.on.points[0], name))
	}
	controller, below, _ := strings.Cut(name, "/")
	dir, ok := d.on.dir(controller, below)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d.fs.Read(dir)
}

// number returns the number a, 0 if it is absent or unlimited, and at most the largest int64.
func number(a kernel.Amount) int64 {
	n, _ := a.Number()
	return int64(min(n, math.MaxInt64))
}

// count returns the number a, or 0 if it is absent.
func count(a kernel.Amount) uint64 {
	n, _ := a.Number()
	return n
}

func cpuStats(c kernel.CPU) CPUStats {
	return CPUStats{
		Usage: time.Duration(number(c.Total)), User: time.Duration(number(c.User)), System: time.Duration(number(c.System)),
		Periods: count(c.Periods), Throttled: count(c.Throttled), ThrottledTime: time.Duration(number(c.ThrottledFor)),
	}
}

func memoryStats(g *kernel.Group) MemoryStats {
	m, usage, events := g.Memory(), g.MemoryUsage(), g.MemoryEvents()
	out := MemoryStats{
		Usage: number(usage), WorkingSet: number(usage.Less(m.InactiveFile)), RSS: number(m.Anon), Limit: Unlimited, Swap: number(g.SwapUsage(m)),
		PageFaults: count(m.AllFaults), MajorPageFaults: count(m.AllMajorFaults),
		Events: MemoryEvents{
			Low: count(events.Low), High: count(events.High), Max: count(events.Max), OOM: count(events.OOM), OOMKill: count(events.OOMKills),
		},
	}
	if limit := g.MemoryLimit(); !limit.Unlimited() && limit.Known() {
		out.Limit = number(limit)
	}
	return out
}

// pressureStats returns nil on kernels without PSI, or with PSI switched off.
func pressureStats(g *kernel.Group) *PressureStats {
	cpu, memory, io := g.Pressure("cpu"), g.Pressure("memory"), g.Pressure("io")
	if cpu == nil || memory == nil || io == nil { // the kernel has all or none
		return nil
	}
	return &PressureStats{CPU: pressure(*cpu), Memory: pressure(*memory), IO: pressure(*io)}
}

// memoryEvents returns the counters of memory.events; missing ones are 0.
func memoryEvents(ev kernel.Table) MemoryEvents {
	return MemoryEvents{Low: ev["low"], High: ev["high"], Max: ev["max"], OOM: ev["oom"], OOMKill: ev["oom_kill"]}
}

// noPressure reports whether an error of opening or reading a PSI file means that
// the kernel lacks PSI or has it switched off (boot parameter psi=0).
func noPressure(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotSupported)
}
