package usage

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/cgroups"
)

// figures has the usage of a cgroup, including its descendants; nil means not readable.
type figures struct {
	at  time.Time
	cpu struct {
		total, user, system                *uint64 // nanoseconds
		periods, throttled, throttledNanos *uint64
		shares, quota, period              *uint64 // quota is nil if there is none
	}
	memory struct {
		usage, workingSet, rss, cache, mapped *uint64
		swap, limit, swapLimit, max           *uint64 // math.MaxUint64 means no limit
		faults, majorFaults, failures, oom    *uint64
		kernel                                *uint64
	}
	pids, pidsLimit *uint64
	io              map[device]operations
	pressure        struct{ cpu, memory, io *cgroups.Pressure }
}

// look reads the usage of a cgroup.
func (r *Reader) look(cgroup string) *figures {
	f := &figures{at: time.Now()}
	if r.v2 {
		r.lookV2(cgroup, f)
	} else {
		r.lookV1(cgroup, f)
	}
	f.pids = r.number("pids", cgroup, "pids.current")
	f.pidsLimit = r.number("pids", cgroup, "pids.max")
	return f
}

func (r *Reader) lookV2(cgroup string, f *figures) {
	stat := flat(r.read("", cgroup, "cpu.stat"))
	c := &f.cpu
	c.total, c.user, c.system = micros(stat, "usage_usec"), micros(stat, "user_usec"), micros(stat, "system_usec")
	c.periods, c.throttled, c.throttledNanos = pick(stat, "nr_periods"), pick(stat, "nr_throttled"), micros(stat, "throttled_usec")
	if w := r.number("", cgroup, "cpu.weight"); w != nil {
		c.shares = new(sharesOf(*w))
	}
	if quota, period, ok := strings.Cut(strings.TrimSpace(string(r.read("", cgroup, "cpu.max"))), " "); ok {
		if n, err := strconv.ParseUint(period, 10, 64); err == nil {
			c.period = &n
		}
		if n, err := strconv.ParseUint(quota, 10, 64); err == nil {
			c.quota = &n
		}
	}
	m, mem := &f.memory, flat(r.read("", cgroup, "memory.stat"))
	m.usage, m.max = r.number("", cgroup, "memory.current"), r.number("", cgroup, "memory.peak")
	m.limit = r.number("", cgroup, "memory.max")
	m.rss, m.cache, m.mapped = pick(mem, "anon"), pick(mem, "file"), pick(mem, "file_mapped")
	m.faults, m.majorFaults = pick(mem, "pgfault"), pick(mem, "pgmajfault")
	m.workingSet = less(m.usage, pick(mem, "inactive_file"))
	m.swap, m.swapLimit = r.number("", cgroup, "memory.swap.current"), r.number("", cgroup, "memory.swap.max")
	m.kernel = pick(mem, "kernel")
	events := flat(r.read("", cgroup, "memory.events"))
	m.failures, m.oom = pick(events, "max"), pick(events, "oom_kill")
	f.io = ioStat(r.read("", cgroup, "io.stat"))
	f.pressure.cpu, f.pressure.memory, f.pressure.io = r.pressure(cgroup, "cpu"), r.pressure(cgroup, "memory"), r.pressure(cgroup, "io")
}

// sharesOf converts a cgroup v2 weight to v1 shares, as OCI runtimes do.
func sharesOf(weight uint64) uint64 {
	if weight == 0 || weight > 10000 {
		return 0
	}
	return 2 + (weight-1)*262142/9999
}

// ticksPerSecond is USER_HZ, the unit of CPU times in /proc on all architectures.
const ticksPerSecond = 100

func (r *Reader) lookV1(cgroup string, f *figures) {
	c, stat := &f.cpu, flat(r.read("cpu", cgroup, "cpu.stat"))
	c.total = r.number("cpuacct", cgroup, "cpuacct.usage")
	c.user, c.system = r.number("cpuacct", cgroup, "cpuacct.usage_user"), r.number("cpuacct", cgroup, "cpuacct.usage_sys")
	if c.user == nil || c.system == nil {
		ticks := flat(r.read("cpuacct", cgroup, "cpuacct.stat"))
		c.user, c.system = times(ticks, "user", uint64(time.Second)/ticksPerSecond), times(ticks, "system", uint64(time.Second)/ticksPerSecond)
	}
	c.periods, c.throttled, c.throttledNanos = pick(stat, "nr_periods"), pick(stat, "nr_throttled"), pick(stat, "throttled_time")
	c.shares, c.period = r.number("cpu", cgroup, "cpu.shares"), r.number("cpu", cgroup, "cpu.cfs_period_us")
	if q := r.number("cpu", cgroup, "cpu.cfs_quota_us"); q != nil && *q != math.MaxUint64 {
		c.quota = q
	}
	m, mem := &f.memory, flat(r.read("memory", cgroup, "memory.stat"))
	m.usage, m.max = r.number("memory", cgroup, "memory.usage_in_bytes"), r.number("memory", cgroup, "memory.max_usage_in_bytes")
	m.limit = r.number("memory", cgroup, "memory.limit_in_bytes")
	if m.limit != nil && unlimited(*m.limit) {
		m.limit = new(uint64(math.MaxUint64))
	}
	m.rss, m.cache, m.mapped = pick(mem, "total_rss"), pick(mem, "total_cache"), pick(mem, "total_mapped_file")
	m.faults, m.majorFaults = pick(mem, "total_pgfault"), pick(mem, "total_pgmajfault")
	m.workingSet = less(m.usage, pick(mem, "total_inactive_file"))
	m.swap = pick(mem, "total_swap")
	if both := r.number("memory", cgroup, "memory.memsw.limit_in_bytes"); both != nil && m.limit != nil {
		switch {
		case unlimited(*both):
			m.swapLimit = new(uint64(math.MaxUint64))
		default:
			m.swapLimit = less(both, m.limit)
		}
	}
	m.kernel = r.number("memory", cgroup, "memory.kmem.usage_in_bytes")
	m.failures = r.number("memory", cgroup, "memory.failcnt")
	m.oom = pick(flat(r.read("memory", cgroup, "memory.oom_control")), "oom_kill")
	f.io = map[device]operations{}
	blkio(r.read("blkio", cgroup, "blkio.throttle.io_service_bytes_recursive"), f.io, true)
	blkio(r.read("blkio", cgroup, "blkio.throttle.io_serviced_recursive"), f.io, false)
}

func (r *Reader) pressure(cgroup, of string) *cgroups.Pressure {
	b := r.read("", cgroup, of+".pressure")
	if len(b) == 0 {
		return nil
	}
	p, err := cgroups.ParsePressure(b)
	if err != nil {
		return nil
	}
	return &p
}

func pick(of map[string]uint64, name string) *uint64 {
	if n, ok := of[name]; ok {
		return &n
	}
	return nil
}

func micros(of map[string]uint64, name string) *uint64 {
	return times(of, name, uint64(time.Microsecond))
}

// times multiplies a value, and returns at most the largest number.
func times(of map[string]uint64, name string, unit uint64) *uint64 {
	n := pick(of, name)
	if n == nil {
		return nil
	}
	if *n > math.MaxUint64/unit {
		return new(uint64(math.MaxUint64))
	}
	return new(*n * unit)
}

// less returns the difference, or 0 if it would be negative; nil unless both are known.
func less(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return a
	}
	if *b > *a {
		return new(uint64(0))
	}
	return new(*a - *b)
}
