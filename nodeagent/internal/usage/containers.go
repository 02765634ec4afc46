package usage

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/node/stats"
)

// Key identifies a container of a pod. If Container is "", it identifies the pod itself, and if
// Container is [Sandbox], the pod's sandbox.
type Key struct{ PodUID, Container string }

// Sandbox cannot be the name of a container.
const Sandbox = "/sandbox"

// Detail has the values of cAdvisor about a container that a Summary lacks. Values that are nil
// or "" are not exported.
type Detail struct {
	stats.Detail
	Name  string // the runtime's id
	Image string
}

// Details reads details of containers. If it fails, it may return a part of them together with
// the error.
type Details interface {
	Details(ctx context.Context) (map[Key]Detail, error)
	// Devices returns the devices of the node.
	Devices() []stats.Device
}

// Groups is an optional interface of [Details]. It returns the cgroups that do not belong to a
// single pod, such as the cgroup of all pods, each with its path and its usage. If it fails, it may
// return a part of them together with the error.
type Groups interface {
	Groups() ([]stats.Detail, error)
}

// Machine describes the node's machine.
type Machine struct {
	Cores, PhysicalCores, Sockets int
	MemoryBytes, SwapBytes        uint64
	MachineID, SystemUUID, BootID string
}

// Config configures [Containers]. Stats is required.
type Config struct {
	Stats   Stats
	Details Details       // if nil, only values of Stats are exported
	Machine Machine       // its metrics are left out if Cores is 0
	Timeout time.Duration // of one scrape; the default is 10 s
}

// Containers returns a collector of cAdvisor's metrics, for /metrics/cadvisor: of
// the node with id "/", of pods without a container, of containers; and of the
// cgroups above and beside pods, if Details has them.
func Containers(c Config) prometheus.Collector {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	return &containers{cfg: c, m: newCadvisor()}
}

type containers struct {
	cfg Config
	m   *cadvisor
}

// Describe implements prometheus.Collector.
func (c *containers) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.m.all {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *containers) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	s := sink(ch)
	if m := c.cfg.Machine; m.Cores > 0 {
		labels := []string{m.MachineID, m.SystemUUID, m.BootID}
		s.value(c.m.cores, time.Time{}, float64(m.Cores), labels...)
		if m.PhysicalCores > 0 {
			s.value(c.m.physical, time.Time{}, float64(m.PhysicalCores), labels...)
			s.value(c.m.sockets, time.Time{}, float64(m.Sockets), labels...)
		}
		s.value(c.m.machineMemory, time.Time{}, float64(m.MemoryBytes), labels...)
		s.value(c.m.machineSwap, time.Time{}, float64(m.SwapBytes), labels...)
	}
	sum, err := c.cfg.Stats.Summary(ctx, false)
	details := map[Key]Detail{}
	if sum != nil && c.cfg.Details != nil {
		var derr error
		details, derr = c.cfg.Details.Details(ctx)
		err = errors.Join(err, derr)
	}
	var groups []stats.Detail
	if g, ok := c.cfg.Details.(Groups); ok && sum != nil {
		var gerr error
		groups, gerr = g.Groups()
		err = errors.Join(err, gerr)
	}
	failed := 0.0
	if err != nil {
		failed = 1
	}
	s.value(c.m.failed, time.Time{}, failed)
	if sum == nil {
		return
	}
	n := &sum.Node
	c.one(s, who{id: "/"}, n.StartTime, n.CPU, n.Memory, n.IO, n.Swap, stats.Detail{})
	c.network(s, who{id: "/"}, n.Network, nil)
	if n.Fs != nil {
		l := c.fs(s, who{id: "/"}, n.Fs)
		s.put(c.m.inodes, n.Fs.Time, n.Fs.Inodes, 1, l...)
		s.put(c.m.inodesFree, n.Fs.Time, n.Fs.InodesFree, 1, l...)
	}
	if c.cfg.Details != nil {
		for _, d := range c.cfg.Details.Devices() {
			c.device(s, who{id: "/"}, &d)
		}
	}
	for i := range groups {
		if g := &groups[i]; g.Usage != nil && g.Path != "" && g.Path != "/" {
			u := g.Usage
			c.one(s, who{id: g.Path}, u.StartTime, u.CPU, u.Memory, u.IO, u.Swap, *g)
		}
	}
	for _, p := range newest(sum.Pods) {
		c.pod(s, p, details)
	}
}

func (c *containers) device(s sink, w who, d *stats.Device) {
	const sector = 512
	l := append(w.labels(), d.Name)
	for _, x := range []struct {
		m metric
		v float64
	}{
		{c.m.reads, float64(d.Reads)}, {c.m.readBytes, float64(d.SectorsRead) * sector}, {c.m.sectorsRead, float64(d.SectorsRead)},
		{c.m.readsMerged, float64(d.ReadsMerged)}, {c.m.readTime, d.ReadTime.Seconds()},
		{c.m.writes, float64(d.Writes)}, {c.m.writtenBytes, float64(d.SectorsWritten) * sector}, {c.m.sectorsWritten, float64(d.SectorsWritten)},
		{c.m.writesMerged, float64(d.WritesMerged)}, {c.m.writeTime, d.WriteTime.Seconds()},
		{c.m.inFlight, float64(d.InFlight)}, {c.m.busy, d.Busy.Seconds()}, {c.m.busyWeighted, d.BusyWeighted.Seconds()},
	} {
		s.value(x.m, time.Time{}, x.v, l...)
	}
}

func (c *containers) pod(s sink, p *statsapi.PodStats, details map[Key]Detail) {
	ref := &p.PodRef
	own := details[Key{ref.UID, ""}]
	pod := who{id: own.Path, pod: ref.Name, namespace: ref.Namespace}
	if own.Processes == nil && p.ProcessStats != nil {
		own.Processes = p.ProcessStats.ProcessCount
	}
	c.one(s, pod, p.StartTime, p.CPU, p.Memory, p.IO, p.Swap, own.Detail)
	// As in cAdvisor, the network belongs to the sandbox. If sandboxes have no cgroup, it belongs
	// to the pod.
	sandbox, network, interfaces := details[Key{ref.UID, Sandbox}], pod, own.Interfaces
	if sandbox.Path != "" {
		network, interfaces = who{"", sandbox.Path, sandbox.Image, sandbox.Name, ref.Namespace, ref.Name}, sandbox.Interfaces
	}
	if u := sandbox.Usage; u != nil {
		c.one(s, network, p.StartTime, u.CPU, u.Memory, u.IO, u.Swap, sandbox.Detail)
	}
	c.network(s, network, p.Network, interfaces)
	for i := range p.Containers {
		k := &p.Containers[i]
		d := details[Key{ref.UID, k.Name}]
		w := who{k.Name, d.Path, d.Image, d.Name, ref.Namespace, ref.Name}
		c.one(s, w, k.StartTime, k.CPU, k.Memory, k.IO, k.Swap, d.Detail)
		if k.Rootfs != nil {
			c.fs(s, w, k.Rootfs)
		}
	}
}

// one sends the metrics that the node, pods and containers share.
func (c *containers) one(s sink, w who, start metav1.Time, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, io *statsapi.IOStats, swap *statsapi.SwapStats, d stats.Detail) {
	l, m := w.labels(), c.m
	s.since(m.started, start, l...)
	var seen metav1.Time
	if cpu != nil {
		seen = cpu.Time
		s.put(m.cpu, cpu.Time, cpu.UsageCoreNanoSeconds, nano, append(l[:len(l):len(l)], "total")...)
		pressure(s, m.cpuWaiting, m.cpuStalled, cpu.Time, cpu.PSI, l)
	}
	if memory != nil {
		if seen.Before(&memory.Time) {
			seen = memory.Time
		}
		s.put(m.memory, memory.Time, memory.UsageBytes, 1, l...)
		s.put(m.workingSet, memory.Time, memory.WorkingSetBytes, 1, l...)
		s.put(m.rss, memory.Time, memory.RSSBytes, 1, l...)
		s.put(m.faults, memory.Time, memory.PageFaults, 1, append(l[:len(l):len(l)], "pgfault", "container")...)
		s.put(m.faults, memory.Time, memory.MajorPageFaults, 1, append(l[:len(l):len(l)], "pgmajfault", "container")...)
		pressure(s, m.memoryWaiting, m.memoryStalled, memory.Time, memory.PSI, l)
	}
	if io != nil {
		pressure(s, m.ioWaiting, m.ioStalled, io.Time, io.PSI, l)
	}
	switch {
	case swap != nil:
		s.put(m.swap, swap.Time, swap.SwapUsageBytes, 1, l...)
	case memory != nil: // cAdvisor's value where swap is not counted
		s.value(m.swap, memory.Time.Time, 0, l...)
	}
	if !seen.IsZero() {
		s.value(m.lastSeen, time.Time{}, float64(seen.Unix()), l...)
	}
	for _, x := range []struct {
		m     metric
		v     *uint64
		scale float64
	}{
		{m.cache, d.Cache, 1}, {m.mapped, d.MappedFile, 1}, {m.maxUsage, d.MaxUsage, 1}, {m.failcnt, d.FailedCharges, 1},
		{m.active, d.ActiveFile, 1}, {m.inactive, d.InactiveFile, 1}, {m.kernel, d.KernelMemory, 1},
		{m.highEvents, d.HighEvents, 1}, {m.maxEvents, d.MaxEvents, 1}, {m.dirty, d.Dirty, 1}, {m.writeback, d.Writeback, 1},
		{m.scanned, d.Scanned, 1}, {m.reclaimed, d.Reclaimed, 1}, {m.refaultedFile, d.RefaultedFile, 1}, {m.refaultedAnon, d.RefaultedAnon, 1},
		{m.bursts, d.Bursts, 1}, {m.burstFor, d.BurstNanos, nano},
		{m.files, d.FileDescriptors, 1}, {m.openSockets, d.Sockets, 1},
		{m.oom, d.OOMKills, 1}, {m.processes, d.Processes, 1}, {m.threads, d.Threads, 1}, {m.maxThreads, d.MaxThreads, 1},
		{m.user, d.UserNanos, nano}, {m.system, d.SystemNanos, nano},
		{m.periods, d.Periods, 1}, {m.throttled, d.Throttled, 1}, {m.throttledFor, d.ThrottledNanos, nano},
		{m.specShares, d.CPUShares, 1}, {m.specPeriod, d.CPUPeriod, 1}, {m.specQuota, d.CPUQuota, 1},
		{m.specMemory, d.MemoryLimit, 1}, {m.specLow, d.MemoryReservation, 1}, {m.specSwap, d.SwapLimit, 1},
	} {
		s.put(x.m, metav1.Time{}, x.v, x.scale, l...)
	}
	s.put(m.ulimits, metav1.Time{}, d.OpenFilesLimit, 1, append(l[:len(l):len(l)], "max_open_files")...)
	disks := d.Disks
	if len(disks) == 0 && d.Path != "" {
		disks = []stats.DiskIO{{}} // without disks the value is 0; it is missing only if the disks are unknown
	}
	for i := range disks {
		k := &disks[i]
		of := append(l[:len(l):len(l)], k.Device)
		s.value(m.reads, time.Time{}, float64(k.Reads), of...)
		s.value(m.writes, time.Time{}, float64(k.Writes), of...)
		s.value(m.readBytes, time.Time{}, float64(k.ReadBytes), of...)
		s.value(m.writtenBytes, time.Time{}, float64(k.WriteBytes), of...)
		of = append(of, strconv.FormatUint(k.Major, 10), strconv.FormatUint(k.Minor, 10))
		s.value(m.blkio, time.Time{}, float64(k.ReadBytes), append(of[:len(of):len(of)], "Read")...)
		s.value(m.blkio, time.Time{}, float64(k.WriteBytes), append(of[:len(of):len(of)], "Write")...)
	}
}

// pressure sends stall information, which is in microseconds.
func pressure(s sink, waiting, stalled metric, at metav1.Time, p *statsapi.PSIStats, l []string) {
	if p != nil {
		s.value(waiting, at.Time, float64(p.Some.Total)*1e-6, l...)
		s.value(stalled, at.Time, float64(p.Full.Total)*1e-6, l...)
	}
}

func (c *containers) fs(s sink, w who, f *statsapi.FsStats) (labels []string) {
	l := append(w.labels(), "") // a Summary has no device
	s.put(c.m.fsUsed, f.Time, f.UsedBytes, 1, l...)
	s.put(c.m.fsLimit, f.Time, f.CapacityBytes, 1, l...)
	return l
}

func (c *containers) network(s sink, w who, n *statsapi.NetworkStats, more []stats.Interface) {
	if n == nil {
		return
	}
	list := n.Interfaces
	if len(list) == 0 && n.Name != "" {
		list = []statsapi.InterfaceStats{n.InterfaceStats}
	}
	for i := range list {
		f := &list[i]
		l := append(w.labels(), f.Name)
		s.put(c.m.rxBytes, n.Time, f.RxBytes, 1, l...)
		s.put(c.m.txBytes, n.Time, f.TxBytes, 1, l...)
		s.put(c.m.rxErrors, n.Time, f.RxErrors, 1, l...)
		s.put(c.m.txErrors, n.Time, f.TxErrors, 1, l...)
	}
	for i := range more {
		f := &more[i]
		l := append(w.labels(), f.Name)
		s.put(c.m.rxPackets, n.Time, f.RxPackets, 1, l...)
		s.put(c.m.txPackets, n.Time, f.TxPackets, 1, l...)
		s.put(c.m.rxDropped, n.Time, f.RxDropped, 1, l...)
		s.put(c.m.txDropped, n.Time, f.TxDropped, 1, l...)
	}
}
