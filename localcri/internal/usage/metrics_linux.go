package usage

import (
	"context"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/kernel"
)

// Labels are the common labels of all metrics of a container or pod, as in the kubelet's
// metrics/cadvisor.
type Labels struct {
	// Container is the container's name, or "" for a pod. ID is the path of the cgroup. Name is
	// the runtime's name of the container.
	Container, ID, Image, Name, Namespace, Pod string
}

var labelKeys = []string{"container", "id", "image", "name", "namespace", "pod"}

func (l Labels) values() []string {
	return []string{l.Container, l.ID, l.Image, l.Name, l.Namespace, l.Pod}
}

// metric is a metric, and the function that computes it.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	more       []string // label keys besides the common ones
	of         func(g *given) []point
}

// given is the input from which metrics are computed. If a part is nil, its metrics are omitted.
type given struct {
	f        *figures
	ifaces   []kernel.Interface
	layer    *runtimeapi.FilesystemUsage
	room     *room
	opened   *opened
	started  time.Time
	lastSeen time.Time
}

// point is a value with its label values.
type point struct {
	labels []string
	value  uint64
}

func one(a kernel.Amount) []point {
	if n, ok := a.Number(); ok {
		return []point{{value: n}}
	}
	return nil
}

// seconds converts nanoseconds to seconds, the time unit of Prometheus. Values of the CRI are
// integers, so it rounds down.
func seconds(nanos kernel.Amount) []point {
	if n, ok := nanos.Number(); ok {
		return []point{{value: n / uint64(time.Second)}}
	}
	return nil
}

// limit returns the value of a limit. It returns 0 if there is no limit.
func limit(a kernel.Amount) []point {
	if a.Unlimited() {
		return []point{{value: 0}}
	}
	return one(a)
}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// metrics are the metrics that this package reports of pods and containers.
var metrics = slices.Concat([]metric{
	{"container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", counter, []string{"cpu"}, func(g *given) []point {
		out := seconds(g.fig().cpu.Total)
		for i := range out {
			out[i].labels = []string{"total"}
		}
		return out
	}},
	{"container_cpu_user_seconds_total", "Cumulative user cpu time consumed in seconds.", counter, nil, func(g *given) []point { return seconds(g.fig().cpu.User) }},
	{"container_cpu_system_seconds_total", "Cumulative system cpu time consumed in seconds.", counter, nil, func(g *given) []point { return seconds(g.fig().cpu.System) }},
	{"container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals.", counter, nil, func(g *given) []point { return one(g.fig().cpu.Periods) }},
	{"container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals.", counter, nil, func(g *given) []point { return one(g.fig().cpu.Throttled) }},
	{"container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.", counter, nil, func(g *given) []point { return seconds(g.fig().cpu.ThrottledFor) }},
	{"container_spec_cpu_shares", "CPU share of the container.", gauge, nil, func(g *given) []point { return one(g.fig().limits.Shares) }},
	{"container_spec_cpu_period", "CPU period of the container.", gauge, nil, func(g *given) []point { return one(g.fig().limits.Period) }},
	{"container_spec_cpu_quota", "CPU quota of the container.", gauge, nil, func(g *given) []point { return one(g.fig().limits.Quota) }},

	{"container_memory_usage_bytes", "Current memory usage in bytes, including all memory regardless of when it was accessed.", gauge, nil, func(g *given) []point { return one(g.fig().usage) }},
	{"container_memory_working_set_bytes", "Current working set in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().workingSet) }},
	{"container_memory_rss", "Size of RSS in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().memory.Anon) }},
	{"container_memory_cache", "Number of bytes of page cache memory.", gauge, nil, func(g *given) []point { return one(g.fig().memory.Cache) }},
	{"container_memory_mapped_file", "Size of memory mapped files in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().memory.Mapped) }},
	{"container_memory_swap", "Container swap usage in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().swap) }},
	{"container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().max) }},
	{"container_memory_kernel_usage", "Size of kernel memory allocated in bytes.", gauge, nil, func(g *given) []point { return one(g.fig().memory.Kernel) }},
	{"container_memory_failcnt", "Number of memory usage hits limits.", counter, nil, func(g *given) []point { return one(g.fig().events.Max) }},
	{"container_memory_failures_total", "Cumulative count of memory allocation failures.", counter, []string{"failure_type", "scope"}, func(g *given) []point {
		var out []point
		for kind, n := range map[string]kernel.Amount{"pgfault": g.fig().memory.AllFaults, "pgmajfault": g.fig().memory.AllMajorFaults} {
			if n, ok := n.Number(); ok {
				out = append(out, point{[]string{kind, "hierarchy"}, n})
			}
		}
		slices.SortFunc(out, func(a, b point) int { return slices.Compare(a.labels, b.labels) })
		return out
	}},
	{"container_oom_events_total", "Count of out of memory events observed for the container.", counter, nil, func(g *given) []point { return one(g.fig().events.OOMKills) }},
	{"container_spec_memory_limit_bytes", "Memory limit for the container.", gauge, nil, func(g *given) []point { return limit(g.fig().limit) }},
	{"container_spec_memory_swap_limit_bytes", "Memory swap limit for the container.", gauge, nil, func(g *given) []point { return limit(g.fig().swapLimit) }},

	{"container_processes", "Number of processes running inside the container.", gauge, nil, func(g *given) []point {
		return g.ofOpened(func(o opened) uint64 { return o.processes })
	}},
	{"container_file_descriptors", "Number of open file descriptors for the container.", gauge, nil, func(g *given) []point {
		return g.ofOpened(func(o opened) uint64 { return o.files })
	}},
	{"container_sockets", "Number of open sockets for the container.", gauge, nil, func(g *given) []point {
		return g.ofOpened(func(o opened) uint64 { return o.sockets })
	}},
	{"container_threads", "Number of threads running inside the container.", gauge, nil, func(g *given) []point { return one(g.fig().threads) }},
	{"container_threads_max", "Maximum number of threads allowed inside the container.", gauge, nil, func(g *given) []point { return limit(g.fig().maxThreads) }},

	{"container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", gauge, []string{"device"}, func(g *given) []point {
		return g.ofLayer(g.layer.GetUsedBytes())
	}},
	{"container_fs_inodes_used", "Number of inodes that are consumed by the container on this filesystem.", gauge, []string{"device"}, func(g *given) []point {
		return g.ofLayer(g.layer.GetInodesUsed())
	}},
	{"container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", gauge, []string{"device"}, func(g *given) []point {
		return g.ofRoom(func(r room) uint64 { return r.bytes })
	}},
	{"container_fs_inodes_total", "Number of inodes of the filesystem.", gauge, []string{"device"}, func(g *given) []point {
		return g.ofRoom(func(r room) uint64 { return r.inodes })
	}},
	{"container_fs_inodes_free", "Number of inodes of the filesystem that are free.", gauge, []string{"device"}, func(g *given) []point {
		return g.ofRoom(func(r room) uint64 { return r.free })
	}},
	{"container_blkio_device_usage_total", "Cumulative count of bytes read and written, by device.", counter, []string{"device", "major", "minor", "operation"}, func(g *given) []point {
		var out []point
		for _, d := range g.disks() {
			major, minor, _ := strings.Cut(d.Device, ":")
			out = append(out, point{[]string{d.Device, major, minor, "Read"}, d.ReadBytes}, point{[]string{d.Device, major, minor, "Write"}, d.WriteBytes})
		}
		return out
	}},
	ioMetric("container_fs_reads_bytes_total", "Cumulative count of bytes read.", func(d kernel.DiskIO) uint64 { return d.ReadBytes }),
	ioMetric("container_fs_writes_bytes_total", "Cumulative count of bytes written.", func(d kernel.DiskIO) uint64 { return d.WriteBytes }),
	ioMetric("container_fs_reads_total", "Cumulative count of reads completed.", func(d kernel.DiskIO) uint64 { return d.Reads }),
	ioMetric("container_fs_writes_total", "Cumulative count of writes completed.", func(d kernel.DiskIO) uint64 { return d.Writes }),

	{"container_start_time_seconds", "Start time of the container since unix epoch in seconds.", gauge, nil, func(g *given) []point { return at(g.started) }},
	{"container_last_seen", "Last time a container was seen by the exporter.", gauge, nil, func(g *given) []point { return at(g.lastSeen) }},
},
	netMetrics("receive", func(i kernel.Interface) [4]uint64 { return [4]uint64{i.RxBytes, i.RxPackets, i.RxErrors, i.RxDropped} }),
	netMetrics("transmit", func(i kernel.Interface) [4]uint64 { return [4]uint64{i.TxBytes, i.TxPackets, i.TxErrors, i.TxDropped} }),
)

func (g *given) fig() *figures {
	if g.f == nil {
		return &figures{}
	}
	return g.f
}

// disks returns the disks by device.
func (g *given) disks() []kernel.DiskIO {
	return slices.SortedFunc(slices.Values(g.fig().io), func(a, b kernel.DiskIO) int { return strings.Compare(a.Device, b.Device) })
}

// ofLayer returns a value with an empty device label, since an overlayfs has no device
// of its own.
func (g *given) ofLayer(n *runtimeapi.UInt64Value) []point {
	if n == nil {
		return nil
	}
	return []point{{[]string{""}, n.GetValue()}}
}

func (g *given) ofRoom(of func(room) uint64) []point {
	if g.room == nil {
		return nil
	}
	return []point{{[]string{""}, of(*g.room)}}
}

func (g *given) ofOpened(of func(opened) uint64) []point {
	if g.opened == nil {
		return nil
	}
	return []point{{value: of(*g.opened)}}
}

func at(t time.Time) []point {
	if t.IsZero() || t.Unix() < 0 {
		return nil
	}
	return []point{{value: uint64(t.Unix())}}
}

func ioMetric(name, help string, of func(kernel.DiskIO) uint64) metric {
	return metric{name, help, counter, []string{"device"}, func(g *given) []point {
		var out []point
		for _, d := range g.disks() {
			out = append(out, point{[]string{d.Device}, of(d)})
		}
		return out
	}}
}

func netMetrics(way string, of func(kernel.Interface) [4]uint64) []metric {
	var out []metric
	for i, what := range []struct{ name, help string }{
		{"bytes", "bytes"}, {"packets", "packets"}, {"errors", "errors encountered"}, {"packets_dropped", "packets dropped"},
	} {
		out = append(out, metric{
			"container_network_" + way + "_" + what.name + "_total", "Cumulative count of " + what.help + " (" + way + ").", counter, []string{"interface"},
			func(g *given) []point {
				var out []point
				for _, f := range g.ifaces {
					out = append(out, point{[]string{f.Name}, of(f)[i]})
				}
				return out
			},
		})
	}
	return out
}

// Descriptors returns the descriptions of all metrics.
func Descriptors() []*runtimeapi.MetricDescriptor {
	var out []*runtimeapi.MetricDescriptor
	for _, m := range metrics {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: slices.Concat(labelKeys, m.more)})
	}
	return out
}

func (g *given) metrics(l Labels) []*runtimeapi.Metric {
	var out []*runtimeapi.Metric
	for _, m := range metrics {
		for _, p := range m.of(g) {
			out = append(out, &runtimeapi.Metric{
				Name: m.name, MetricType: m.kind, LabelValues: slices.Concat(l.values(), p.labels), Value: &runtimeapi.UInt64Value{Value: p.value},
			})
		}
	}
	return out
}

// ContainerMetrics returns the metrics of a container, from its cgroup and its writable layer. If
// the cgroup does not exist, the error is fs.ErrNotExist.
func (r *Reader) ContainerMetrics(ctx context.Context, cgroup string, layer Layer, started time.Time, l Labels) ([]*runtimeapi.Metric, error) {
	f, err := r.look(ctx, cgroup)
	if err != nil {
		return nil, err
	}
	g := &given{f: f, opened: r.open(cgroup), started: started, lastSeen: time.Now()}
	if layer.Upper != "" {
		g.room = roomOf(layer.Upper)
		g.layer = r.layers.measure(ctx, layer, r.cfg.Mountpoint)
	}
	return g.metrics(l), nil
}

// PodMetrics returns the metrics of a pod, from its cgroup and from the network namespace at
// netns. If one of them is "", its metrics are omitted.
func (r *Reader) PodMetrics(ctx context.Context, cgroup, netns string, started time.Time, l Labels) ([]*runtimeapi.Metric, error) {
	g := &given{started: started, lastSeen: time.Now()}
	if cgroup != "" && cgroup != "/" {
		var err error
		if g.f, err = r.look(ctx, cgroup); err != nil {
			return nil, err
		}
	}
	if netns != "" {
		var err error
		if g.ifaces, err = interfaces(netns); err != nil {
			return nil, err
		}
	}
	return g.metrics(l), nil
}
