package stats

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Numbers for the metrics of cAdvisor's names, which are read only when they are
// scraped. A Summary has none of them.

// Cgroup has the values of a cgroup beyond its [Usage]. Nil means not known or not
// applicable: without a CPU quota there are no periods.
type Cgroup struct {
	Cache, MappedFile, ActiveFile, InactiveFile *uint64 // bytes of memory
	KernelMemory                                *uint64 // bytes
	MaxUsage                                    *uint64 // highest memory usage, bytes
	FailedCharges                               *uint64 // how often the memory limit was hit
	OOMKills                                    *uint64 // OOM kills of processes
	// HighEvents and MaxEvents count how often memory.high throttled and the limit
	// was hit: on cgroup v1 nil, and FailedCharges.
	HighEvents, MaxEvents *uint64
	// Dirty and Writeback are bytes of the page cache that are not on the disk yet.
	Dirty, Writeback *uint64
	// Scanned and Reclaimed are pages of reclaim, RefaultedFile and RefaultedAnon
	// pages that were needed again after reclaim. On v1 the first two are not
	// known.
	Scanned, Reclaimed, RefaultedFile, RefaultedAnon *uint64

	Processes, Threads, MaxThreads     *uint64
	FileDescriptors, Sockets           *uint64 // only of containers, at most 65536 of each
	OpenFilesLimit                     *uint64 // soft limit of a container's first process
	UserNanos, SystemNanos             *uint64 // CPU time
	Periods, Throttled, ThrottledNanos *uint64 // of the quota
	Bursts, BurstNanos                 *uint64 // number of periods with bursts, and the time used beyond the quota

	// The limits: the weight of cgroup v1, microseconds, and bytes, where 0 is no
	// limit. SwapLimit is for swap alone on v2, for memory and swap on v1.
	CPUShares, CPUPeriod, CPUQuota            *uint64
	MemoryLimit, MemoryReservation, SwapLimit *uint64
}

// DiskIO is the I/O of a cgroup on a block device.
type DiskIO struct {
	Device                               string // such as /dev/sda
	Major, Minor                         uint64
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// Device is the I/O of a block device since the boot (/proc/diskstats;
// Documentation/admin-guide/iostats.rst).
type Device struct {
	Name                                 string // such as /dev/sda
	Reads, ReadsMerged, SectorsRead      uint64 // a sector has 512 bytes
	Writes, WritesMerged, SectorsWritten uint64
	ReadTime, WriteTime                  time.Duration // of all requests together
	InFlight                             uint64        // requests now
	Busy, BusyWeighted                   time.Duration // weighted: times the requests in flight
}

// Upper bounds of numbers from files, so that they fit their unit; maxWeight is
// cgroup v2's. Larger numbers come from a broken file, and would overflow.
const (
	maxMillis = uint64(1<<63-1) / 1e6
	maxMicros = uint64(1<<64-1) / 1e3
	maxWeight = 10000
)

// Devices returns the block devices of the node with any I/O, in the kernel's
// order, whole disks and partitions. Nil if the file cannot be read.
func (m *Collector) Devices() (out []Device) {
	for _, line := range (cgroups{files: m.cfg.Proc}).split("diskstats") {
		if len(line) < 14 {
			continue
		}
		var n [11]uint64
		for i := range n {
			// A field that is not a number counts as 0: newer kernels only add
			// fields at the end.
			n[i], _ = strconv.ParseUint(line[3+i], 10, 64)
		}
		if n == [11]uint64{} {
			continue // an unused loop device
		}
		ms := func(i int) time.Duration { return time.Duration(min(n[i], maxMillis)) * time.Millisecond } //nolint:gosec // no more than fits
		out = append(out, Device{
			Name: "/dev/" + line[2], Reads: n[0], ReadsMerged: n[1], SectorsRead: n[2], ReadTime: ms(3),
			Writes: n[4], WritesMerged: n[5], SectorsWritten: n[6], WriteTime: ms(7), InFlight: n[8], Busy: ms(9), BusyWeighted: ms(10),
		})
	}
	return out
}

// Interface has the counts of a network interface that a Summary lacks, since the
// interface was created. The receiving side is the container's.
type Interface struct {
	Name                                       string
	RxPackets, TxPackets, RxDropped, TxDropped *uint64
}

// Detail has the values of a cgroup that a Summary lacks.
type Detail struct {
	Path string // from the root of the hierarchy: "/kubepods/..."
	// The values from files, by cgroup version.
	Cgroup
	Disks      []DiskIO
	Interfaces []Interface // of a sandbox with its own network, or of its pod if sandboxes have no cgroup
	// Usage is the usage of a sandbox; nil for containers and pods, whose usage is in
	// the Summary.
	Usage *statsapi.ContainerStats
}

// PodDetail has the details of a pod, and of its containers and sandbox by runtime
// id. Processes of the pod include those of its containers, unlike the files of its
// own cgroup.
type PodDetail struct {
	Detail
	Containers map[string]Detail
}

// Details reads the cgroups of pods from files, without calls of the runtime, so that it works
// while the runtime hangs. want returns whether to read a pod, the ID of its sandbox, and
// whether the sandbox has its own network. A removed cgroup is left out. The caller owns the
// result, which is nil if there is no cgroup of pods.
func (m *Collector) Details(want func(types.UID) (sandbox string, network, ok bool)) (map[types.UID]PodDetail, error) {
	if m.cfg.PodsCgroup == noCgroup {
		return nil, nil
	}
	c := newCgroups(m.cfg.Cgroups)
	dirs, err := c.pods(m.cfg.PodsCgroup)
	if err != nil {
		return nil, fmt.Errorf("stats: cgroups of pods: %w", err)
	}
	// Once for all: /proc/partitions is the same for every cgroup.
	names := m.proc.devices()
	out := make(map[types.UID]PodDetail, len(dirs))
	for uid, d := range dirs {
		sandbox, network, ok := want(uid)
		if !ok {
			continue
		}
		p := PodDetail{Containers: make(map[string]Detail, len(d.containers))}
		// It ended between the list and here.
		if p.Detail, _, ok = c.detail(d.dir, names); !ok {
			continue
		}
		for id, dir := range d.containers {
			k, pids, ok := c.detail(dir, names)
			if !ok {
				continue
			}
			// Of containers and not of the pod's own cgroup: there it would count
			// nothing new.
			k.readFiles(m.cfg.Proc, pids)
			// A Summary leaves sandboxes out, but cAdvisor's metrics have them.
			if id == sandbox {
				if u, err := c.read(dir); err == nil {
					k.Usage = &statsapi.ContainerStats{StartTime: m.cgroupStart(c, dir)}
					setContainer(k.Usage, u, m.rate(dir, u))
				}
				if network {
					k.Interfaces = interfaces(m.proc.netdev(pids))
				}
			}
			p.Containers[id], p.Processes = k, add(p.Processes, k.Processes)
		}
		// A runtime without pause containers has no process in the sandbox; see
		// podNetdev.
		if _, ok := d.containers[sandbox]; !ok && network {
			p.Interfaces = interfaces(m.proc.podNetdev(c, d, sandbox))
		}
		out[uid] = p
	}
	return out, nil
}

// detail reads a cgroup and its processes; false if it is gone. names are names of
// block devices by number. A cgroup counts as gone if neither its processes nor its
// CPU time can be read.
func (c cgroups) detail(dir string, names map[string]string) (d Detail, pids []string, ok bool) {
	d.Path = "/" + dir
	if pids, ok = c.procs(dir); ok {
		d.Processes = ptr(uint64(len(pids)))
	}
	if c.v2 {
		d.readV2(c, func(name string) string { return path.Join(dir, name) }, names)
	} else {
		d.readV1(c, dir, names)
	}
	return d, pids, d.Processes != nil || d.UserNanos != nil
}

// readV2 reads the files of cgroup v2. A number whose file or line is missing in an
// older kernel stays nil.
func (d *Detail) readV2(c cgroups, file func(string) string, names map[string]string) {
	c.keyed(file("cpu.stat"), map[string]**uint64{
		"user_usec": &d.UserNanos, "system_usec": &d.SystemNanos,
		"nr_periods": &d.Periods, "nr_throttled": &d.Throttled, "throttled_usec": &d.ThrottledNanos,
		"nr_bursts": &d.Bursts, "burst_usec": &d.BurstNanos,
	})
	// Microseconds in the files.
	for _, p := range []*uint64{d.UserNanos, d.SystemNanos, d.ThrottledNanos, d.BurstNanos} {
		if p != nil {
			*p = min(*p, maxMicros) * 1000
		}
	}
	d.quota(c.fields(file("cpu.max")))
	if w := c.number(file("cpu.weight")); w != nil {
		// The inverse of how runtimes made the weight of the shares (KEP-2254).
		d.CPUShares = ptr(2 + less(min(*w, maxWeight), 1)*262142/9999)
	}
	c.keyed(file("memory.stat"), map[string]**uint64{
		"file": &d.Cache, "file_mapped": &d.MappedFile, "active_file": &d.ActiveFile, "inactive_file": &d.InactiveFile, "kernel": &d.KernelMemory,
		"file_dirty": &d.Dirty, "file_writeback": &d.Writeback, "pgscan": &d.Scanned, "pgsteal": &d.Reclaimed,
		"workingset_refault_file": &d.RefaultedFile, "workingset_refault_anon": &d.RefaultedAnon,
	})
	// The counts include the cgroups below, which the file memory.events.local does
	// not.
	c.keyed(file("memory.events"), map[string]**uint64{"high": &d.HighEvents, "max": &d.FailedCharges, "oom_kill": &d.OOMKills})
	d.MaxEvents = d.FailedCharges
	d.MaxUsage = c.number(file("memory.peak"))
	d.MemoryLimit, d.MemoryReservation, d.SwapLimit = c.limit(file("memory.max")), c.limit(file("memory.min")), c.limit(file("memory.swap.max"))
	d.Threads, d.MaxThreads = c.number(file("pids.current")), c.limit(file("pids.max"))
	// A line is "8:0 rbytes=1 wbytes=2 rios=3 wios=4 ...".
	for _, line := range c.split(file("io.stat")) {
		if names[line[0]] == "" {
			continue // the device is gone
		}
		dev := newDiskIO(line[0], names)
		to := map[string]*uint64{"rbytes": &dev.ReadBytes, "wbytes": &dev.WriteBytes, "rios": &dev.Reads, "wios": &dev.Writes}
		for _, f := range line[1:] {
			name, value, _ := strings.Cut(f, "=")
			if p := to[name]; p != nil {
				*p, _ = strconv.ParseUint(value, 10, 64)
			}
		}
		d.Disks = append(d.Disks, dev)
	}
}

// readV1 reads the files of cgroup v1, from the directories of five controllers.
// Its times are in nanoseconds already.
func (d *Detail) readV1(c cgroups, dir string, names map[string]string) {
	file := func(controller, name string) string { return path.Join(controller, dir, name) }
	// The controller is mounted alone or together with cpuacct, by distribution.
	for _, cpu := range []string{"cpu", "cpu,cpuacct"} {
		if d.CPUShares = c.number(file(cpu, "cpu.shares")); d.CPUShares != nil {
			c.keyed(file(cpu, "cpu.stat"), map[string]**uint64{
				"nr_periods": &d.Periods, "nr_throttled": &d.Throttled, "throttled_time": &d.ThrottledNanos,
				"nr_bursts": &d.Bursts, "burst_time": &d.BurstNanos,
			})
			d.quota(append(c.fields(file(cpu, "cpu.cfs_quota_us")), c.fields(file(cpu, "cpu.cfs_period_us"))...))
			break
		}
	}
	// usage_user and usage_sys are finer than cpuacct.stat, which counts in ticks.
	for _, acct := range []string{"cpuacct", "cpu,cpuacct"} {
		if d.UserNanos == nil {
			d.UserNanos, d.SystemNanos = c.number(file(acct, "cpuacct.usage_user")), c.number(file(acct, "cpuacct.usage_sys"))
		}
	}
	c.keyed(file("memory", "memory.stat"), map[string]**uint64{
		"total_cache": &d.Cache, "total_mapped_file": &d.MappedFile, "total_active_file": &d.ActiveFile, "total_inactive_file": &d.InactiveFile,
		"total_dirty": &d.Dirty, "total_writeback": &d.Writeback, "total_workingset_refault_file": &d.RefaultedFile, "total_workingset_refault_anon": &d.RefaultedAnon,
	})
	c.keyed(file("memory", "memory.oom_control"), map[string]**uint64{"oom_kill": &d.OOMKills})
	d.MaxUsage, d.FailedCharges = c.number(file("memory", "memory.max_usage_in_bytes")), c.number(file("memory", "memory.failcnt"))
	// v1 has no memory.high: zero events are a fact, and not unknown.
	if d.FailedCharges != nil {
		d.MaxEvents, d.HighEvents = d.FailedCharges, new(uint64)
	}
	d.KernelMemory = c.number(file("memory", "memory.kmem.usage_in_bytes"))
	d.MemoryLimit, d.MemoryReservation = c.limit(file("memory", "memory.limit_in_bytes")), c.limit(file("memory", "memory.soft_limit_in_bytes"))
	d.SwapLimit = c.limit(file("memory", "memory.memsw.limit_in_bytes"))
	d.Threads, d.MaxThreads = c.number(file("pids", "pids.current")), c.limit(file("pids", "pids.max"))
	// Two files have the numbers of one device, in the order of the first.
	at := map[string]*DiskIO{}
	var order []string
	disk := func(dev string) *DiskIO {
		if at[dev] == nil {
			at[dev] = ptr(newDiskIO(dev, names))
			order = append(order, dev)
		}
		return at[dev]
	}
	count := func(name string, read, written func(*DiskIO) *uint64) {
		// The recursive file includes the cgroups below; older kernels lack it.
		lines := c.split(file("blkio", name+"_recursive"))
		if lines == nil {
			lines = c.split(file("blkio", name))
		}
		for _, line := range lines {
			if len(line) != 3 || names[line[0]] == "" {
				continue // the total, or a device that is gone
			}
			switch n, _ := strconv.ParseUint(line[2], 10, 64); line[1] {
			case "Read":
				*read(disk(line[0])) = n
			case "Write":
				*written(disk(line[0])) = n
			}
		}
	}
	count("blkio.throttle.io_service_bytes", func(i *DiskIO) *uint64 { return &i.ReadBytes }, func(i *DiskIO) *uint64 { return &i.WriteBytes })
	count("blkio.throttle.io_serviced", func(i *DiskIO) *uint64 { return &i.Reads }, func(i *DiskIO) *uint64 { return &i.Writes })
	for _, dev := range order {
		d.Disks = append(d.Disks, *at[dev])
	}
}

// newDiskIO returns the DiskIO of a device given as major:minor. A malformed number
// is 0.
func newDiskIO(dev string, names map[string]string) DiskIO {
	out := DiskIO{Device: names[dev]}
	major, minor, _ := strings.Cut(dev, ":")
	out.Major, _ = strconv.ParseUint(major, 10, 64)
	out.Minor, _ = strconv.ParseUint(minor, 10, 64)
	return out
}

// procs returns the processes in a cgroup; false if it does not exist. On v2 only leaves have
// processes, so a pod's own list is empty.
func (c cgroups) procs(dir string) (pids []string, ok bool) {
	if !c.v2 {
		dir = path.Join("memory", dir)
	}
	raw, err := fs.ReadFile(c.files, path.Join(dir, "cgroup.procs"))
	return strings.Fields(string(raw)), err == nil
}

// maxCgroupDepth is how deep the cgroups that a container made of its own are followed.
const maxCgroupDepth = 8

// below returns the processes in a cgroup and its descendants.
func (c cgroups) below(dir string, depth int) []string {
	pids, ok := c.procs(dir)
	if !ok || depth == 0 {
		return pids
	}
	top := dir
	if !c.v2 {
		top = path.Join("memory", dir)
	}
	entries, _ := fs.ReadDir(c.files, top) // one that is gone has none
	for _, e := range entries {
		if e.IsDir() {
			pids = append(pids, c.below(path.Join(dir, e.Name()), depth-1)...)
		}
	}
	return pids
}

// maxFiles limits the open files of a container that are counted, since counting costs time.
const maxFiles = 1 << 16

// readFiles counts the open files of processes. A process that ends meanwhile has
// none. pids are those of one container, the oldest first. Only root can see them;
// a process that the agent may not see counts as one without files.
func (d *Detail) readFiles(proc fs.FS, pids []string) {
	if len(pids) == 0 {
		return
	}
	var files, sockets uint64
	for _, pid := range pids {
		dir, err := proc.Open(pid + "/fd")
		if err != nil {
			continue
		}
		// A piece at a time, so that the bound holds for a single process with
		// millions of files too.
		for list, ok := dir.(fs.ReadDirFile); ok && files < maxFiles; {
			entries, err := list.ReadDir(256)
			for _, e := range entries {
				files++
				if to, err := fs.ReadLink(proc, path.Join(pid, "fd", e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
					sockets++
				}
			}
			if err != nil {
				break
			}
		}
		_ = dir.Close()
	}
	d.FileDescriptors, d.Sockets = &files, &sockets
	// The limit of the first process stands for the container's: others inherit it.
	limits, _ := fs.ReadFile(proc, pids[0]+"/limits")
	for line := range strings.Lines(string(limits)) { // Max open files  soft  hard  files
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				if n, err := strconv.ParseUint(f[0], 10, 64); err == nil {
					d.OpenFilesLimit = &n
				}
			}
		}
	}
}

// quota parses "max 100000" or "50000 100000"; -1 stands for max. Without a quota
// the counts of periods are meaningless. Times are in microseconds. No quota leaves
// CPUQuota nil.
func (d *Detail) quota(fields []string) {
	if len(fields) == 2 {
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			d.CPUPeriod = &n
		}
		if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil && n > 0 {
			d.CPUQuota = &n
			return
		}
	}
	// Without a quota the kernel counts 0 periods, which would look like a
	// container that is never throttled.
	d.Periods, d.Throttled, d.ThrottledNanos, d.Bursts, d.BurstNanos = nil, nil, nil, nil, nil
}

// limit returns 0 without a limit, like cAdvisor; nil means not known.
func (c cgroups) limit(name string) *uint64 {
	n := c.number(name)
	if n != nil && *n >= unlimited {
		return ptr[uint64](0)
	}
	return n
}

// fields returns the words of a file; nil if it cannot be read.
func (c cgroups) fields(name string) []string {
	raw, _ := fs.ReadFile(c.files, name)
	return strings.Fields(string(raw))
}

// split returns the fields of each non-empty line of a file; nil if it cannot be read.
func (c cgroups) split(name string) (out [][]string) {
	raw, _ := fs.ReadFile(c.files, name)
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// devices returns the names of block devices, whole disks and partitions, by major:minor.
func (p proc) devices() map[string]string {
	out := map[string]string{}
	for _, f := range (cgroups{files: p.files}).split("partitions") { // major minor #blocks name
		if len(f) == 4 {
			out[f[0]+":"+f[1]] = "/dev/" + f[3]
		}
	}
	return out
}

// interfaces reads packets of /proc/<pid>/net/dev. Eight columns are of receiving
// and eight of sending (proc(5)). The loopback device is left out, as in the
// kubelet.
func interfaces(raw []byte) (out []Interface) {
	for line := range strings.Lines(string(raw)) {
		name, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || len(fields) < 12 || name == "lo" {
			continue
		}
		i := Interface{Name: name}
		for col, to := range map[int]**uint64{1: &i.RxPackets, 3: &i.RxDropped, 9: &i.TxPackets, 11: &i.TxDropped} {
			if n, err := strconv.ParseUint(fields[col], 10, 64); err == nil {
				*to = &n
			}
		}
		out = append(out, i)
	}
	return out
}
