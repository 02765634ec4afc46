package stats

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Numbers for the metrics of cAdvisor's names, which are read only when they are
// scraped. A Summary has none of them.

// Cgroup has the values of a cgroup beyond its [Usage]. A value is nil if it is not known or does
// not apply: without a CPU quota, for example, there are no periods.
type Cgroup struct {
	Cache, MappedFile, ActiveFile, InactiveFile *uint64 // bytes of memory
	KernelMemory                                *uint64 // bytes
	MaxUsage                                    *uint64 // highest memory usage, bytes
	FailedCharges                               *uint64 // how often the memory limit was hit
	OOMKills                                    *uint64 // OOM kills of processes
	// HighEvents counts how often the cgroup was throttled by memory.high, and
	// MaxEvents how often its memory limit was hit. Both are nil on cgroup v1, which
	// has FailedCharges instead.
	HighEvents, MaxEvents *uint64
	// Dirty and Writeback are bytes of the page cache that are not on the disk yet.
	Dirty, Writeback *uint64
	// Scanned and Reclaimed count the pages that reclaim scanned and freed.
	// RefaultedFile and RefaultedAnon count the pages that were read again after they
	// had been reclaimed. On v1, Scanned and Reclaimed are nil.
	Scanned, Reclaimed, RefaultedFile, RefaultedAnon *uint64

	Processes, Threads, MaxThreads     *uint64
	FileDescriptors, Sockets           *uint64 // only of containers, at most 65536 of each
	OpenFilesLimit                     *uint64 // soft limit of a container's first process
	UserNanos, SystemNanos             *uint64 // CPU time
	Periods, Throttled, ThrottledNanos *uint64 // of the quota
	Bursts, BurstNanos                 *uint64 // number of periods with bursts, and the time used beyond the quota

	// CPUShares is the weight in the scale of cgroup v1. CPUPeriod and CPUQuota are in
	// microseconds. The limits of memory and swap are in bytes, where 0 means no limit.
	// SwapLimit limits swap alone on v2, and the sum of memory and swap on v1.
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

// Devices returns the block devices of the node with any I/O, in the kernel's order. It includes
// whole disks and partitions. It returns nil if the kernel's file cannot be read.
func (m *Collector) Devices() (out []Device) {
	all, _ := m.kernel.Disks(context.Background())
	const most = uint64(1<<63-1) / 1e6
	millis := func(n uint64) time.Duration { return time.Duration(min(n, most)) * time.Millisecond } //nolint:gosec // no more than fits
	for _, d := range all {
		out = append(out, Device{
			Name: "/dev/" + d.Name, Reads: d.Reads, ReadsMerged: d.ReadsMerged, SectorsRead: d.SectorsRead, ReadTime: millis(d.ReadFor),
			Writes: d.Writes, WritesMerged: d.WritesMerged, SectorsWritten: d.SectorsWritten, WriteTime: millis(d.WriteFor),
			InFlight: d.InFlight, Busy: millis(d.BusyFor), BusyWeighted: millis(d.WeightedBusy),
		})
	}
	return out
}

// Interface has the counts of a network interface that a Summary lacks, since the
// interface was created. Rx counts the packets that the container receives.
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
	// Usage is the usage of a sandbox. It is nil for containers and pods, whose usage is in the
	// Summary.
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
	c := m.cgroups()
	dirs, err := c.pods(m.cfg.PodsCgroup)
	if err != nil {
		return nil, fmt.Errorf("stats: list cgroups of pods: %w", err)
	}
	// Once for all: /proc/partitions is the same for every cgroup.
	names := m.deviceNames()
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
			// Files are read for containers, and not for the pod's own cgroup, where they would add
			// nothing.
			k.readFiles(c, m.cfg.Proc, pids)
			// A Summary leaves sandboxes out, but cAdvisor's metrics have them.
			if id == sandbox {
				if u, err := c.read(dir); err == nil {
					k.Usage = &statsapi.ContainerStats{StartTime: m.cgroupStart(c, dir)}
					setContainer(k.Usage, u, m.rate(dir, u))
				}
				if network {
					k.Interfaces = interfaces(c.interfaces(pids))
				}
			}
			p.Containers[id], p.Processes = k, add(p.Processes, k.Processes)
		}
		// A runtime without pause containers has no process in the sandbox; see
		// podInterfaces.
		if _, ok := d.containers[sandbox]; !ok && network {
			p.Interfaces = interfaces(c.podInterfaces(d, sandbox))
		}
		out[uid] = p
	}
	return out, nil
}

// detail reads a cgroup and its processes. names are names of block devices by number. ok is
// false if the cgroup is gone, which is assumed if neither its processes nor its CPU time can be
// read.
func (c cgroups) detail(dir string, names map[string]string) (d Detail, pids []int, ok bool) {
	type result struct {
		Detail
		pids []int
	}
	out, err := kernel.ReadGroup(context.Background(), c.Reader, dir, func(g *kernel.Group) (result, error) {
		d := Detail{Path: "/" + dir}
		pids, ok := g.Processes()
		if ok {
			d.Processes = ptr(uint64(len(pids)))
		}
		d.read(g, names)
		return result{d, pids}, nil
	})
	return out.Detail, out.pids, err == nil && (out.Processes != nil || out.UserNanos != nil)
}

// read reads the files of a cgroup. Values that the kernel does not have stay nil.
func (d *Detail) read(g *kernel.Group, names map[string]string) {
	cpu, cpuLimits, memory, events := g.CPU(), g.CPULimits(), g.Memory(), g.MemoryEvents()
	d.UserNanos, d.SystemNanos = limit(cpu.User), limit(cpu.System)
	d.CPUShares, d.CPUPeriod = limit(cpuLimits.Shares), limit(cpuLimits.Period)
	// Without a quota the kernel counts 0 periods, which would look like a
	// container that is never throttled.
	if quota, ok := cpuLimits.Quota.Number(); ok && quota > 0 {
		d.CPUQuota = &quota
		d.Periods, d.Throttled, d.ThrottledNanos = limit(cpu.Periods), limit(cpu.Throttled), limit(cpu.ThrottledFor)
		d.Bursts, d.BurstNanos = limit(cpu.Bursts), limit(cpu.BurstFor)
	}
	d.Cache, d.MappedFile, d.ActiveFile, d.InactiveFile = limit(memory.Cache), limit(memory.Mapped), limit(memory.ActiveFile), limit(memory.InactiveFile)
	d.Dirty, d.Writeback, d.Scanned, d.Reclaimed = limit(memory.Dirty), limit(memory.Writeback), limit(memory.Scanned), limit(memory.Reclaimed)
	d.RefaultedFile, d.RefaultedAnon, d.KernelMemory = limit(memory.RefaultedFile), limit(memory.RefaultedAnon), limit(memory.Kernel)
	d.HighEvents, d.MaxEvents, d.FailedCharges, d.OOMKills = limit(events.High), limit(events.Max), limit(events.Max), limit(events.OOMKills)
	if !g.V2() {
		d.KernelMemory = limit(g.KernelMemoryV1())
		// v1 has no memory.high: zero events are a fact, and not unknown.
		if d.MaxEvents != nil {
			d.HighEvents = new(uint64)
		}
	}
	d.MaxUsage, d.Threads = limit(g.MaxMemoryUsage()), limit(g.Threads())
	// Like cAdvisor's: no limit is 0.
	const none = 0
	d.MemoryLimit, d.MemoryReservation, d.SwapLimit = g.MemoryLimit().Pointer(none), g.MemoryReservation().Pointer(none), g.SwapLimit().Pointer(none)
	d.MaxThreads = g.MaxThreads().Pointer(none)
	for _, disk := range g.IO() {
		if name := names[disk.Device]; name != "" { // otherwise the device is gone
			major, minor, _ := strings.Cut(disk.Device, ":")
			out := DiskIO{Device: name, ReadBytes: disk.ReadBytes, WriteBytes: disk.WriteBytes, Reads: disk.Reads, Writes: disk.Writes}
			out.Major, _ = strconv.ParseUint(major, 10, 64)
			out.Minor, _ = strconv.ParseUint(minor, 10, 64)
			d.Disks = append(d.Disks, out)
		}
	}
}

// procs returns the processes in a cgroup. ok is false if the cgroup does not exist. On v2 only
// leaves have processes, so a pod's own list is empty.
func (c cgroups) procs(dir string) (pids []int, ok bool) {
	pids, err := kernel.ReadGroup(context.Background(), c.Reader, dir, func(g *kernel.Group) (pids []int, err error) {
		pids, ok := g.Processes()
		if !ok {
			return nil, fs.ErrNotExist
		}
		return pids, nil
	})
	return pids, err == nil
}

// maxCgroupDepth limits the depth to which cgroups created by a container are read.
const maxCgroupDepth = 8

// below returns the processes in a cgroup and its descendants.
func (c cgroups) below(dir string, depth int) []int {
	pids, ok := c.procs(dir)
	if !ok || depth == 0 {
		return pids
	}
	children, _ := c.Children(context.Background(), dir) // one that is gone has none
	for _, name := range children {
		pids = append(pids, c.below(path.Join(dir, name), depth-1)...)
	}
	return pids
}

// maxFiles limits the open files of a container that are counted, since counting costs time.
const maxFiles = 1 << 16

// readFiles counts the open files of processes. A process that ends meanwhile has none.
// pids are those of one container, the oldest first. Only root can list the open files
// of all processes. A process whose files the agent cannot list counts as a process
// without open files.
func (d *Detail) readFiles(c cgroups, proc fs.FS, pids []int) {
	if len(pids) == 0 {
		return
	}
	var files, sockets uint64
	for _, pid := range pids {
		fds := strconv.Itoa(pid) + "/fd"
		dir, err := proc.Open(fds)
		if err != nil {
			continue
		}
		// A piece at a time, so that the bound holds for a single process with
		// millions of files too.
		for list, ok := dir.(fs.ReadDirFile); ok && files < maxFiles; {
			entries, err := list.ReadDir(256)
			for _, e := range entries {
				files++
				if to, err := fs.ReadLink(proc, path.Join(fds, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
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
	if most, err := c.OpenFilesLimit(context.Background(), pids[0]); err == nil {
		d.OpenFilesLimit = limit(most)
	}
}

// deviceNames returns the names of block devices, whole disks and partitions, by major:minor.
func (m *Collector) deviceNames() map[string]string {
	names, _ := m.kernel.BlockDevices(context.Background())
	for device, name := range names {
		names[device] = "/dev/" + name
	}
	return names
}

// interfaces returns the counts that a Summary lacks.
func interfaces(all []kernel.Interface) (out []Interface) {
	for _, i := range all {
		out = append(out, Interface{i.Name, &i.RxPackets, &i.TxPackets, &i.RxDropped, &i.TxDropped})
	}
	return out
}
