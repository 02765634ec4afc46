package stats

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Collectors for Prometheus. They have no state: each scrape reads a summary, so that a
// series ends when its container is removed. Names and labels are the kubelet's.

// ResourceMetrics returns a collector of the kubelet's /metrics/resource, each
// value with its time, and container_pressure_*. A scrape shares its answer with
// other requests. It may be registered once in a registry. A scrape takes at most
// ten seconds.
func (m *Collector) ResourceMetrics() prometheus.Collector {
	return &resourceCollector{m: m, d: newDescs()}
}

// resourceCollector is the collector; its descriptions never change.
type resourceCollector struct {
	m *Collector
	d *descs
}

// descs are the descriptions of all metrics; all has them as a list, for Describe.
type descs struct {
	all                                                []*prometheus.Desc
	nodeCPU, nodeMemory, nodeSwap                      *prometheus.Desc
	cpu, memory, swap, swapLimit, start                *prometheus.Desc
	podCPU, podMemory, podSwap, failed, failedFormerly *prometheus.Desc
	pressure                                           [3][2]*prometheus.Desc // cpu, memory, io; waiting (some), stalled (full)
}

func newDescs() *descs {
	d := &descs{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		n := prometheus.NewDesc(name, help, labels, nil)
		d.all = append(d.all, n)
		return n
	}
	container, pod := []string{"container", "pod", "namespace"}, []string{"pod", "namespace"}
	d.nodeCPU = desc("node_cpu_usage_seconds_total", "Cumulative processor time of the node, in core-seconds.")
	d.nodeMemory = desc("node_memory_working_set_bytes", "Working set of the node.")
	d.nodeSwap = desc("node_swap_usage_bytes", "Swap in use on the node.")
	d.cpu = desc("container_cpu_usage_seconds_total", "Cumulative processor time of the container, in core-seconds.", container...)
	d.memory = desc("container_memory_working_set_bytes", "Working set of the container.", container...)
	d.swap = desc("container_swap_usage_bytes", "Swap in use by the container.", container...)
	d.swapLimit = desc("container_swap_limit_bytes", "How much swap the container may use.", container...)
	d.start = desc("container_start_time_seconds", "Unix time of the container's start.", container...)
	d.podCPU = desc("pod_cpu_usage_seconds_total", "Cumulative processor time of the pod, in core-seconds.", pod...)
	d.podMemory = desc("pod_memory_working_set_bytes", "Working set of the pod.", pod...)
	d.podSwap = desc("pod_swap_usage_bytes", "Swap in use by the pod.", pod...)
	d.failed = desc("resource_scrape_error", "1 if something could not be read.")
	d.failedFormerly = desc("scrape_error", "1 if something could not be read. Deprecated: see resource_scrape_error.")
	for i, what := range []string{"cpu", "memory", "io"} {
		d.pressure[i][0] = desc("container_pressure_"+what+"_waiting_seconds_total", "Time in which some of the container's tasks waited.", container...)
		d.pressure[i][1] = desc("container_pressure_"+what+"_stalled_seconds_total", "Time in which all of the container's tasks waited.", container...)
	}
	return d
}

// Describe implements prometheus.Collector.
func (r *resourceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.d.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r *resourceCollector) Collect(ch chan<- prometheus.Metric) {
	// A collector gets no context from the scrape.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := r.m.CPUAndMemory(ctx)
	// Partial answers are shown, with the failure beside them.
	failed := 0.0
	if err != nil {
		failed = 1
	}
	// The older name is for rules that have not been changed yet.
	for _, d := range []*prometheus.Desc{r.d.failed, r.d.failedFormerly} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, failed)
	}
	if s == nil {
		return
	}
	e := emitter(ch)
	d := r.d
	e.use(d.nodeCPU, d.nodeMemory, d.nodeSwap, s.Node.CPU, s.Node.Memory, s.Node.Swap)
	for i := range s.Pods {
		p := &s.Pods[i]
		if replaced(s.Pods, p) {
			continue // each series may be sent once
		}
		e.use(d.podCPU, d.podMemory, d.podSwap, p.CPU, p.Memory, p.Swap, p.PodRef.Name, p.PodRef.Namespace)
		for j := range p.Containers {
			c := &p.Containers[j]
			labels := []string{c.Name, p.PodRef.Name, p.PodRef.Namespace}
			e.use(d.cpu, d.memory, d.swap, c.CPU, c.Memory, c.Swap, labels...)
			if !c.StartTime.IsZero() {
				ch <- prometheus.MustNewConstMetric(d.start, prometheus.GaugeValue, float64(c.StartTime.UnixNano())/1e9, labels...)
			}
			if c.Swap != nil && c.Swap.SwapAvailableBytes != nil {
				e.one(d.swapLimit, prometheus.GaugeValue, c.Swap.Time, add(c.Swap.SwapUsageBytes, c.Swap.SwapAvailableBytes), 1, labels...)
			}
			e.pressures(d, c, labels)
		}
	}
}

// replaced reports whether list has a newer pod with the namespace and name of p. Both exist for a
// while when a pod is replaced. Two series with the same labels would make the whole scrape fail.
func replaced(list []statsapi.PodStats, p *statsapi.PodStats) bool {
	for i := range list {
		o := &list[i]
		if o.PodRef.Name == p.PodRef.Name && o.PodRef.Namespace == p.PodRef.Namespace && o.PodRef.UID != p.PodRef.UID &&
			(p.StartTime.Before(&o.StartTime) || p.StartTime.Equal(&o.StartTime) && p.PodRef.UID < o.PodRef.UID) {
			return true
		}
	}
	return false
}

// emitter is the channel to which metrics of one scrape are sent.
type emitter chan<- prometheus.Metric

// one sends the value v with its time, multiplied by the factor that converts it to the
// metric's unit. A nil value is not sent.
func (e emitter) one(d *prometheus.Desc, kind prometheus.ValueType, at metav1.Time, v *uint64, unit float64, labels ...string) {
	if v != nil {
		e <- prometheus.NewMetricWithTimestamp(at.Time, prometheus.MustNewConstMetric(d, kind, float64(*v)*unit, labels...))
	}
}

// use sends CPU time in seconds, the working set and swap, if they are known.
func (e emitter) use(cpu, memory, swap *prometheus.Desc, c *statsapi.CPUStats, m *statsapi.MemoryStats, s *statsapi.SwapStats, labels ...string) {
	if c != nil {
		e.one(cpu, prometheus.CounterValue, c.Time, c.UsageCoreNanoSeconds, 1e-9, labels...)
	}
	if m != nil {
		e.one(memory, prometheus.GaugeValue, m.Time, m.WorkingSetBytes, 1, labels...)
	}
	if s != nil {
		e.one(swap, prometheus.GaugeValue, s.Time, s.SwapUsageBytes, 1, labels...)
	}
}

// pressures sends how long a container's tasks have waited. The kernel counts
// microseconds.
func (e emitter) pressures(d *descs, c *statsapi.ContainerStats, labels []string) {
	psi := [3]*statsapi.PSIStats{}
	if c.CPU != nil {
		psi[0] = c.CPU.PSI
	}
	if c.Memory != nil {
		psi[1] = c.Memory.PSI
	}
	if c.IO != nil {
		psi[2] = c.IO.PSI
	}
	for i, p := range psi {
		if p != nil {
			e <- prometheus.MustNewConstMetric(d.pressure[i][0], prometheus.CounterValue, float64(p.Some.Total)/1e6, labels...)
			e <- prometheus.MustNewConstMetric(d.pressure[i][1], prometheus.CounterValue, float64(p.Full.Total)/1e6, labels...)
		}
	}
}

// VolumeMetrics returns a collector of kubelet_volume_stats_*, for volumes with a
// claim. A claim of several pods is sent once. A scrape takes at most
// ten seconds.
func (m *Collector) VolumeMetrics() prometheus.Collector {
	v := &volumeMetrics{m: m}
	for _, what := range []string{"capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"} {
		v.descs = append(v.descs, prometheus.NewDesc("kubelet_volume_stats_"+what, "Of the volume's file system.", []string{"namespace", "persistentvolumeclaim"}, nil))
	}
	return v
}

// volumeMetrics has its descriptions in the order of the numbers in Collect.
type volumeMetrics struct {
	m     *Collector
	descs []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (v *volumeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range v.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (v *volumeMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, _ := v.m.Summary(ctx) // resource_scrape_error reports an error
	if s == nil {
		return
	}
	// Each series may be sent once, while every pod with the claim has it in its
	// stats.
	told := map[statsapi.PVCReference]bool{}
	for i := range s.Pods {
		for _, vol := range s.Pods[i].VolumeStats {
			if vol.PVCRef == nil || told[*vol.PVCRef] {
				continue
			}
			told[*vol.PVCRef] = true
			for j, n := range []*uint64{vol.CapacityBytes, vol.AvailableBytes, vol.UsedBytes, vol.Inodes, vol.InodesFree, vol.InodesUsed} {
				if n != nil {
					ch <- prometheus.MustNewConstMetric(v.descs[j], prometheus.GaugeValue, float64(*n), vol.PVCRef.Namespace, vol.PVCRef.Name)
				}
			}
		}
	}
}

// LogMetrics returns a collector of kubelet_container_log_filesystem_used_bytes, for containers
// with logs in Config.LogDir. The size is from the last summary, which may be a second old.
func (m *Collector) LogMetrics() prometheus.Collector {
	return &logMetrics{m, prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes",
		"What a container's logs take of their file system.", []string{"uid", "namespace", "pod", "container"}, nil)}
}

type logMetrics struct {
	m    *Collector
	used *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (l *logMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- l.used }

// Collect implements prometheus.Collector.
func (l *logMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, _ := l.m.Summary(ctx) // resource_scrape_error reports an error
	if s == nil {
		return
	}
	for i := range s.Pods {
		pod := &s.Pods[i]
		for _, c := range pod.Containers {
			if c.Logs != nil && c.Logs.UsedBytes != nil {
				ch <- prometheus.MustNewConstMetric(l.used, prometheus.GaugeValue, float64(*c.Logs.UsedBytes),
					pod.PodRef.UID, pod.PodRef.Namespace, pod.PodRef.Name, c.Name)
			}
		}
	}
}
