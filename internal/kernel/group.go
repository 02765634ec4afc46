package kernel

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strconv"
	"strings"
)

// Group reads the files of one cgroup of v1 or v2. Each method reads the files that it needs. A value
// is absent if the kernel does not have it, or if the cgroup does not exist any more. Values include
// the cgroups below, except where a method says otherwise. A Group is valid during [ReadGroup].
type Group struct {
	file  func(name string, limit int) ([]byte, error) // see Files.Read
	batch *Batch
	ctx   context.Context //nolint:containedctx // of ReadGroup
	dir   string
	v2    bool
	errs  []error
	hangs error // ErrNoAnswer of the first file that hangs; further calls return it
}

// ReadGroup calls read with a cgroup, and returns the result of read. dir is the path of the
// cgroup from the root of the hierarchy; the path of the root is "/". If a file of the cgroup
// hangs, ReadGroup returns ErrNoAnswer, and read may still run.
func ReadGroup[T any](ctx context.Context, r *Reader, dir string, read func(*Group) (T, error)) (T, error) {
	var late, zero T
	err := r.calls.Together(ctx, func(b *Batch) (err error) {
		g := GroupIn(ctx, b, r.cgroups.Read, dir, r.v2.Load())
		if !g.v2 {
			if g.v2, err = g.isV2(); err != nil {
				return err
			}
			r.v2.Store(g.v2)
		}
		late, err = read(g)
		return cmp.Or(g.hangs, err)
	})
	if errors.Is(err, ErrNoAnswer) {
		return zero, err // read may still write to late
	}
	return late, err
}

// GroupIn returns a Group for the cgroup dir of v2 or v1. It reads files with the function read, as
// calls of the batch b. read gets names relative to /sys/fs/cgroup, which on v1 begin with a
// controller or with cpu,cpuacct, and returns the errors of [Files.Read].
func GroupIn(ctx context.Context, b *Batch, read func(name string, limit int) ([]byte, error), dir string, v2 bool) *Group {
	return &Group{file: read, batch: b, ctx: ctx, dir: strings.Trim(path.Clean("/"+dir), "/"), v2: v2}
}

// isV2 reports whether the controllers are on cgroup v2. If the root has no file cgroup.controllers,
// the machine has only v1, or both versions with the controllers on v1.
func (g *Group) isV2() (bool, error) {
	_, err := g.call("cgroup.controllers", func(name string) ([]byte, error) { return g.file(name, maxValue) })
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// V2 reports whether the controllers are on cgroup v2. It returns ErrNoAnswer if the file
// system hangs.
func (r *Reader) V2(ctx context.Context) (bool, error) {
	return ReadGroup(ctx, r, "/", func(g *Group) (bool, error) { return g.v2, nil })
}

func (g *Group) call(name string, f func(string) ([]byte, error)) (out []byte, err error) {
	if g.hangs != nil {
		return nil, g.hangs
	}
	err = g.batch.Do(g.ctx, "read", name, func() (err error) {
		out, err = f(name)
		return err
	})
	if errors.Is(err, ErrNoAnswer) {
		g.hangs = err
	}
	return out, err
}

// Err returns the errors of all reads so far, except ErrAbsent and ErrGone.
func (g *Group) Err() error { return errors.Join(g.errs...) }

// at returns the directories that may have the cgroup's files of a controller. On v1 there may be
// two, since cpu and cpuacct are mounted separately or together.
func (g *Group) at(controller string) []string {
	if g.v2 {
		return []string{g.dir}
	}
	dirs := []string{path.Join(controller, g.dir)}
	if controller == "cpu" || controller == "cpuacct" {
		dirs = append(dirs, path.Join("cpu,cpuacct", g.dir))
	}
	return dirs
}

// read returns the content of a file of the cgroup. It returns false if the file does not exist or
// cannot be read. In the second case it adds the error to g.errs.
func (g *Group) read(controller, name string, limit int) ([]byte, bool) {
	for _, dir := range g.at(controller) {
		b, err := g.call(path.Join(dir, name), func(name string) ([]byte, error) { return g.file(name, limit) })
		switch {
		case err == nil:
			return b, true
		case !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrGone):
			g.errs = append(g.errs, err)
			return nil, false
		}
	}
	return nil, false
}

func (g *Group) amount(controller, name string) Amount {
	b, ok := g.read(controller, name, maxValue)
	if !ok {
		return Amount{}
	}
	a, err := parseAmount(name, b)
	if err != nil {
		g.errs = append(g.errs, err)
	}
	return a
}

func (g *Group) table(controller, name string) Table {
	b, _ := g.read(controller, name, maxTable)
	return ParseTable(b)
}

// CPU is the CPU time of a cgroup in nanoseconds, and the use of its quota.
type CPU struct {
	Total, User, System Amount
	// Periods is the number of quota periods, Throttled the number of periods in which the quota
	// was used up. ThrottledFor is the time of throttling in nanoseconds.
	Periods, Throttled, ThrottledFor Amount
	// Bursts is the number of periods with a usage above the quota. BurstFor is the CPU time above
	// the quota in nanoseconds.
	Bursts, BurstFor Amount
}

// CPU reads the CPU time and the use of the quota.
func (g *Group) CPU() CPU {
	s := g.table("cpu", "cpu.stat")
	out := CPU{Periods: s.amount("nr_periods"), Throttled: s.amount("nr_throttled"), Bursts: s.amount("nr_bursts")}
	if g.v2 {
		micros := func(name string) Amount { return s.amount(name).times(1000) }
		out.Total, out.User, out.System = micros("usage_usec"), micros("user_usec"), micros("system_usec")
		out.ThrottledFor, out.BurstFor = micros("throttled_usec"), micros("burst_usec")
		return out
	}
	out.ThrottledFor, out.BurstFor = s.amount("throttled_time"), s.amount("burst_time")
	out.Total = g.CPUTime()
	out.User, out.System = g.amount("cpuacct", "cpuacct.usage_user"), g.amount("cpuacct", "cpuacct.usage_sys")
	if !out.User.Known() || !out.System.Known() { // before Linux 4.8
		ticks := g.table("cpuacct", "cpuacct.stat")
		out.User = cmp.Or(out.User, ticks.amount("user").times(1e9/UserHZ))
		out.System = cmp.Or(out.System, ticks.amount("system").times(1e9/UserHZ))
	}
	return out
}

// CPUTime reads the CPU time in nanoseconds: one file, while CPU reads four on v1.
func (g *Group) CPUTime() Amount {
	if g.v2 {
		return g.table("cpu", "cpu.stat").amount("usage_usec").times(1000)
	}
	return g.amount("cpuacct", "cpuacct.usage")
}

// UserHZ is the number of clock ticks per second in /proc and cgroup v1, on every architecture that
// Go supports.
const UserHZ = 100

// CPULimits are the CPU limits of a cgroup. Shares is its weight in v1's unit. Quota is the CPU time
// per Period; both are in microseconds.
type CPULimits struct{ Shares, Quota, Period Amount }

// CPULimits reads the CPU limits.
func (g *Group) CPULimits() CPULimits {
	if !g.v2 {
		return CPULimits{g.amount("cpu", "cpu.shares"), g.amount("cpu", "cpu.cfs_quota_us"), g.amount("cpu", "cpu.cfs_period_us")}
	}
	var out CPULimits
	if weight, ok := g.amount("cpu", "cpu.weight").Number(); ok {
		// The inverse of the runtimes' conversion from shares to a weight (KEP-2254).
		out.Shares = Number(2 + (min(max(weight, 1), 10000)-1)*262142/9999)
	}
	if b, ok := g.read("cpu", "cpu.max", maxValue); ok {
		quota, period, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
		var err1, err2 error
		out.Quota, err1 = parseAmount("cpu.max", []byte(quota))
		out.Period, err2 = parseAmount("cpu.max", []byte(period))
		if err := errors.Join(err1, err2); err != nil {
			g.errs = append(g.errs, err)
		}
	}
	return out
}

// MemoryUsage reads the bytes that are charged to the cgroup, including the page cache.
func (g *Group) MemoryUsage() Amount {
	return g.amount("memory", g.either("memory.current", "memory.usage_in_bytes"))
}

// either returns the name v2 on cgroup v2, and the name v1 on cgroup v1.
func (g *Group) either(v2, v1 string) string {
	if g.v2 {
		return v2
	}
	return v1
}

// MemoryLimit reads the memory limit in bytes.
func (g *Group) MemoryLimit() Amount {
	return g.amount("memory", g.either("memory.max", "memory.limit_in_bytes"))
}

// MemoryReservation reads the protected memory (v2) or the soft limit (v1), in bytes.
func (g *Group) MemoryReservation() Amount {
	return g.amount("memory", g.either("memory.min", "memory.soft_limit_in_bytes"))
}

// MaxMemoryUsage reads the highest memory usage since the cgroup was created, in bytes.
func (g *Group) MaxMemoryUsage() Amount {
	return g.amount("memory", g.either("memory.peak", "memory.max_usage_in_bytes"))
}

// Memory has values of memory.stat: sizes in bytes, and numbers of page faults and of pages.
type Memory struct {
	// Bytes. Kernel is only known on v2.
	Anon, Cache, Mapped, ActiveFile, InactiveFile, Dirty, Writeback Amount
	Kernel                                                          Amount
	// On v1 without the cgroups below, as in the kubelet.
	Faults, MajorFaults       Amount
	AllFaults, AllMajorFaults Amount
	// Pages. Scanned and Reclaimed are only known on v2.
	Scanned, Reclaimed, RefaultedFile, RefaultedAnon Amount
	Swap                                             Amount // bytes; only known on v1
}

// Memory reads the file memory.stat.
func (g *Group) Memory() Memory {
	s := g.table("memory", "memory.stat")
	if g.v2 {
		return Memory{
			Anon: s.amount("anon"), Cache: s.amount("file"), Mapped: s.amount("file_mapped"),
			ActiveFile: s.amount("active_file"), InactiveFile: s.amount("inactive_file"),
			Dirty: s.amount("file_dirty"), Writeback: s.amount("file_writeback"), Kernel: s.amount("kernel"),
			Faults: s.amount("pgfault"), MajorFaults: s.amount("pgmajfault"), AllFaults: s.amount("pgfault"), AllMajorFaults: s.amount("pgmajfault"),
			Scanned: s.amount("pgscan"), Reclaimed: s.amount("pgsteal"),
			RefaultedFile: s.amount("workingset_refault_file"), RefaultedAnon: s.amount("workingset_refault_anon"),
		}
	}
	return Memory{
		Anon: s.amount("total_rss"), Cache: s.amount("total_cache"), Mapped: s.amount("total_mapped_file"),
		ActiveFile: s.amount("total_active_file"), InactiveFile: s.amount("total_inactive_file", "inactive_file"), // the latter if use_hierarchy is off
		Dirty: s.amount("total_dirty"), Writeback: s.amount("total_writeback"),
		Faults: s.amount("pgfault"), MajorFaults: s.amount("pgmajfault"),
		AllFaults: s.amount("total_pgfault"), AllMajorFaults: s.amount("total_pgmajfault"), Swap: s.amount("total_swap"),
		RefaultedFile: s.amount("total_workingset_refault_file"), RefaultedAnon: s.amount("total_workingset_refault_anon"),
	}
}

// KernelMemoryV1 reads the kernel memory of the cgroup in bytes, on v1. On v2 the result
// of Memory has it.
func (g *Group) KernelMemoryV1() Amount { return g.amount("memory", "memory.kmem.usage_in_bytes") }

// SwapUsage returns the swap in use, in bytes. memory is the result of Memory. The Amount is absent
// if the kernel does not count swap.
func (g *Group) SwapUsage(memory Memory) Amount {
	if g.v2 {
		return g.amount("memory", "memory.swap.current")
	}
	return memory.Swap
}

// SwapLimit reads a limit in bytes: on v2 the limit of swap, on v1 the limit of memory and
// swap together.
func (g *Group) SwapLimit() Amount {
	return g.amount("memory", g.either("memory.swap.max", "memory.memsw.limit_in_bytes"))
}

// V2 reports whether the cgroup is on cgroup v2.
func (g *Group) V2() bool { return g.v2 }

// MemoryEvents has the counters of memory.events. On v1 only Max and OOMKills are known.
type MemoryEvents struct {
	Low      Amount // reclaims although the usage was below memory.low
	High     Amount // throttled processes because the usage was above memory.high
	Max      Amount // times when the usage was about to exceed the limit
	OOM      Amount // times when an allocation was about to fail at the limit
	OOMKills Amount // processes that the OOM killer has killed
}

// MemoryEvents reads how often the cgroup reached its memory limits, and its OOM kills.
func (g *Group) MemoryEvents() MemoryEvents {
	if g.v2 {
		s := g.table("memory", "memory.events")
		return MemoryEvents{s.amount("low"), s.amount("high"), s.amount("max"), s.amount("oom"), s.amount("oom_kill")}
	}
	return MemoryEvents{Max: g.amount("memory", "memory.failcnt"), OOMKills: g.table("memory", "memory.oom_control").amount("oom_kill")}
}

// HugePages reads the bytes of huge pages in use. size is the size of a page, such as 2MB.
func (g *Group) HugePages(size string) Amount {
	return g.amount("hugetlb", "hugetlb."+size+g.either(".current", ".usage_in_bytes"))
}

// Threads reads the number of threads.
func (g *Group) Threads() Amount { return g.amount("pids", "pids.current") }

// MaxThreads reads the limit of the number of threads.
func (g *Group) MaxThreads() Amount { return g.amount("pids", "pids.max") }

// Pressure reads the pressure stall information (PSI) of cpu, io or memory. It returns nil on cgroup
// v1, on kernels without PSI, and on an error, which Err returns.
func (g *Group) Pressure(resource string) *Pressure {
	if !g.v2 {
		return nil
	}
	b, ok := g.read("", resource+".pressure", maxValue)
	if !ok {
		return nil
	}
	p, err := ParsePressure(b)
	if err != nil {
		if !errors.Is(err, ErrAbsent) {
			g.errs = append(g.errs, err)
		}
		return nil
	}
	return &p
}

// DiskIO has the numbers of bytes and operations with which a cgroup has read from and
// written to a block device.
type DiskIO struct {
	Device                               string // major:minor
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// IO reads the I/O of the block devices that the cgroup has used, in the kernel's order.
func (g *Group) IO() []DiskIO {
	if g.v2 {
		b, _ := g.read("io", "io.stat", maxTable)
		return parseIO(b)
	}
	var out disks
	for _, file := range []string{"blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"} {
		// The recursive file includes the cgroups below; older kernels lack it.
		b, ok := g.read("blkio", file+"_recursive", maxTable)
		if !ok {
			b, _ = g.read("blkio", file, maxTable)
		}
		out.blkio(b, strings.HasSuffix(file, "bytes"))
	}
	return out
}

// parseIO parses io.stat: "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...". A device without values has not
// been used.
func parseIO(b []byte) (out []DiskIO) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || !isDevice(f[0]) {
			continue
		}
		d := DiskIO{Device: f[0]}
		to := map[string]*uint64{"rbytes": &d.ReadBytes, "wbytes": &d.WriteBytes, "rios": &d.Reads, "wios": &d.Writes}
		for _, field := range f[1:] {
			name, value, _ := strings.Cut(field, "=")
			if n, err := strconv.ParseUint(value, 10, 64); err == nil && to[name] != nil {
				*to[name] = n
			}
		}
		out = append(out, d)
	}
	return out
}

type disks []DiskIO

// blkio adds the lines "8:0 Read 1" of a file of v1. bytes tells whether their numbers are bytes or
// operations.
func (d *disks) blkio(b []byte, bytes bool) {
	at := map[string]int{}
	for i, disk := range *d {
		at[disk.Device] = i
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 || !isDevice(f[0]) || f[1] != "Read" && f[1] != "Write" {
			continue
		}
		n, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil {
			continue
		}
		i, ok := at[f[0]]
		if !ok {
			i = len(*d)
			at[f[0]] = i
			*d = append(*d, DiskIO{Device: f[0]})
		}
		switch disk := &(*d)[i]; {
		case bytes && f[1] == "Read":
			disk.ReadBytes = n
		case bytes:
			disk.WriteBytes = n
		case f[1] == "Read":
			disk.Reads = n
		default:
			disk.Writes = n
		}
	}
}

func isDevice(s string) bool {
	major, minor, ok := strings.Cut(s, ":")
	return ok && major != "" && minor != "" && strings.Trim(major+minor, "0123456789") == ""
}

// Processes reads the IDs of the processes in the cgroup, without the cgroups below. It leaves out
// processes of other PID namespaces, which the file shows as 0. It returns false if the cgroup does
// not exist.
func (g *Group) Processes() (pids []int, ok bool) {
	b, ok := g.read("memory", "cgroup.procs", maxProcs)
	return ParsePIDs(b), ok
}

// ParsePIDs parses the lines of cgroup.procs. It skips lines that are not process IDs. The result has
// no order and may contain an ID twice (cgroup-v2.rst).
func ParsePIDs(b []byte) (out []int) {
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.ParseInt(strings.TrimSpace(line), 10, 32); err == nil && pid > 0 {
			out = append(out, int(pid))
		}
	}
	return out
}

// Children returns the names of the child cgroups of the cgroup dir. On cgroup v1, it uses
// the hierarchy of the memory controller.
func (r *Reader) Children(ctx context.Context, dir string) ([]string, error) {
	return ReadGroup(ctx, r, dir, func(g *Group) (out []string, err error) {
		name := g.at("memory")[0]
		if name == "" {
			name = "."
		}
		err = g.batch.Do(ctx, "list", name, func() (err error) {
			out, err = r.cgroups.Dirs(name, maxNames)
			return err
		})
		return out, err
	})
}
