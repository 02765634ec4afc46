package stats

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Conversion of readings to the types of the summary API. Pure functions: they use
// neither files nor clocks. A nil pointer stays nil, because 0 and "not known" are
// different for an autoscaler.

// cpuStats returns the CPU statistics. rate is in nanocores. It is nil if the rate is not known
// yet. If u has a rate, that is used instead.
func cpuStats(u *Usage, rate *uint64) *statsapi.CPUStats {
	out := &statsapi.CPUStats{Time: metav1.NewTime(u.At), UsageNanoCores: rate, UsageCoreNanoSeconds: u.CPU, PSI: pressure(u.CPUPressure)}
	switch {
	case u.CPURate != nil:
		out.UsageNanoCores = u.CPURate
	case u.CPU == nil:
		// The kubelet reports 0 for unmeasured values; metrics-server needs the
		// field.
		out.UsageNanoCores, out.UsageCoreNanoSeconds = ptr[uint64](0), ptr[uint64](0)
	}
	return out
}

// pressure returns the pressure for a summary. If the kernel reports no pressure, as on cgroup
// v1, the result has zeros, as in the kubelet since KEP-4205: readers of summaries need the
// field. The result is never nil.
func pressure(p *statsapi.PSIStats) *statsapi.PSIStats {
	if p == nil {
		return &statsapi.PSIStats{}
	}
	return p
}

// memoryStats returns the memory statistics, in bytes. Available is the difference to the limit,
// and not to the node's memory. If there is no limit, Available is nil.
func memoryStats(u *Usage) *statsapi.MemoryStats {
	out := &statsapi.MemoryStats{
		Time: metav1.NewTime(u.At), UsageBytes: u.Memory, WorkingSetBytes: u.WorkingSet, RSSBytes: u.RSS,
		PageFaults: u.Faults, MajorPageFaults: u.MajorFaults, PSI: pressure(u.MemoryPressure),
	}
	// Readers need the field: the kubelet's answers always have it.
	if out.WorkingSetBytes == nil {
		out.WorkingSetBytes = ptr[uint64](0)
	} else if u.MemoryLimit != nil && *u.MemoryLimit < unlimited {
		out.AvailableBytes = ptr(less(*u.MemoryLimit, *u.WorkingSet))
	}
	return out
}

// swapStats returns the statistics of swap. It returns nil if the kernel does not count swap, so
// that the summary has no such field.
func swapStats(u *Usage) *statsapi.SwapStats {
	if u.Swap == nil {
		return nil
	}
	out := &statsapi.SwapStats{Time: metav1.NewTime(u.At), SwapUsageBytes: u.Swap}
	if u.SwapLimit != nil && *u.SwapLimit < unlimited {
		out.SwapAvailableBytes = ptr(less(*u.SwapLimit, *u.Swap))
	}
	return out
}

// ioStats returns the pressure of block devices. If the kernel does not report it, the result is
// nil, unlike for CPU and memory.
func ioStats(u *Usage) *statsapi.IOStats {
	if u.IOPressure == nil {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(u.At), PSI: u.IOPressure}
}

// add adds two numbers. A nil number counts as 0. If both are nil, the result is nil.
func add(a, b *uint64) *uint64 {
	if a == nil && b == nil {
		return nil
	}
	return ptr(zero(a) + zero(b))
}

// sum adds the numbers of a pod's containers, for a pod without its own cgroup. Pressure cannot
// be added. If no container has a number, the sum stays nil, so that a pod without running
// containers does not get zeros.
func sum(pod *statsapi.PodStats) {
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.CPU != nil {
			if pod.CPU == nil {
				pod.CPU = &statsapi.CPUStats{}
			}
			// The time of the last container, as in the kubelet.
			pod.CPU.Time = c.CPU.Time
			pod.CPU.UsageNanoCores = ptr(zero(pod.CPU.UsageNanoCores) + zero(c.CPU.UsageNanoCores))
			pod.CPU.UsageCoreNanoSeconds = ptr(zero(pod.CPU.UsageCoreNanoSeconds) + zero(c.CPU.UsageCoreNanoSeconds))
		}
		if from := c.Memory; from != nil {
			if pod.Memory == nil {
				pod.Memory = &statsapi.MemoryStats{}
			}
			to := pod.Memory
			to.Time = from.Time
			// A container that lacks a number counts as 0: the pod's sum is then
			// too small, but there.
			for _, f := range []struct{ to, from **uint64 }{
				{&to.AvailableBytes, &from.AvailableBytes}, {&to.UsageBytes, &from.UsageBytes}, {&to.WorkingSetBytes, &from.WorkingSetBytes},
				{&to.RSSBytes, &from.RSSBytes}, {&to.PageFaults, &from.PageFaults}, {&to.MajorPageFaults, &from.MajorPageFaults},
			} {
				*f.to = ptr(zero(*f.to) + zero(*f.from))
			}
		}
		if c.Swap != nil {
			if pod.Swap == nil {
				pod.Swap = &statsapi.SwapStats{}
			}
			pod.Swap.Time = c.Swap.Time
			pod.Swap.SwapUsageBytes = add(pod.Swap.SwapUsageBytes, c.Swap.SwapUsageBytes)
			pod.Swap.SwapAvailableBytes = add(pod.Swap.SwapAvailableBytes, c.Swap.SwapAvailableBytes)
		}
	}
}

// ephemeral returns a pod's usage of the node's file system: writable layers, logs, its
// own volumes, and files that the agent stores for it. The time of the result is the
// newest of all parts. node has the available space of the file system; it is nil if
// the space is not known. own is the usage of other files that the pod can write.
func ephemeral(pod *statsapi.PodStats, volumes []Volume, node *statsapi.FsStats, own []*statsapi.FsStats) *statsapi.FsStats {
	out := &statsapi.FsStats{}
	if node != nil {
		out.Time, out.AvailableBytes, out.CapacityBytes = node.Time, node.AvailableBytes, node.CapacityBytes
		out.InodesFree, out.Inodes = node.InodesFree, node.Inodes
	}
	take := func(f *statsapi.FsStats) {
		if f == nil {
			return
		}
		out.UsedBytes, out.InodesUsed = add(out.UsedBytes, f.UsedBytes), add(out.InodesUsed, f.InodesUsed)
		// The newest time: the sum is not older than the last part of it.
		if out.Time.Before(&f.Time) {
			out.Time = f.Time
		}
	}
	for i := range pod.Containers {
		take(pod.Containers[i].Rootfs)
		take(pod.Containers[i].Logs)
	}
	// A claim's volume is on a disk of its own, and a tmpfs is memory: neither
	// counts.
	for i := range volumes {
		if volumes[i].Ephemeral {
			take(&volumes[i].FsStats)
		}
	}
	for _, f := range own {
		take(f)
	}
	return out
}

// fsStats combines the usage of f with the capacity of its file system. disk has the capacity. It
// is nil if the capacity is not known.
func fsStats(f *Filesystem, disk *Disk) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: metav1.NewTime(f.At), UsedBytes: f.Used, InodesUsed: f.InodesUsed}
	if disk != nil {
		out.CapacityBytes, out.AvailableBytes = ptr(disk.Capacity), ptr(disk.Available)
		out.Inodes, out.InodesFree = ptr(disk.Inodes), ptr(disk.InodesFree)
	}
	return out
}

// diskStats returns the statistics of a whole file system. Space reserved for root
// counts as unused, but not as available, so that used and available do not add up
// to the capacity.
func diskStats(d *Disk, at time.Time) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: metav1.NewTime(at), CapacityBytes: ptr(d.Capacity), AvailableBytes: ptr(d.Available),
		UsedBytes: ptr(less(d.Capacity, d.Free)), Inodes: ptr(d.Inodes), InodesFree: ptr(d.InodesFree),
		InodesUsed: ptr(less(d.Inodes, d.InodesFree)),
	}
}

// setContainer sets the values that come from a cgroup.
func setContainer(c *statsapi.ContainerStats, u *Usage, rate *uint64) {
	c.CPU, c.Memory, c.Swap, c.IO = cpuStats(u, rate), memoryStats(u), swapStats(u), ioStats(u)
}
