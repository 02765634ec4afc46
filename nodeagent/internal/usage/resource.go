package usage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Resource returns a collector of the metrics for autoscalers, for /metrics/resource. A scrape
// that takes longer than timeout fails. If timeout is 0, the limit is 10 s.
func Resource(s Stats, timeout time.Duration) prometheus.Collector {
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	pod := []string{"pod", "namespace"}
	container := []string{"container", "pod", "namespace"}
	return &resource{
		stats: s, timeout: timeout,
		node: levels{
			cpu:    counter("node_cpu_usage_seconds_total", "CPU time of the node."),
			memory: gauge("node_memory_working_set_bytes", "Working set of the node."),
			swap:   gauge("node_swap_usage_bytes", "Swap used by the node."),
		},
		pod: levels{
			cpu:    counter("pod_cpu_usage_seconds_total", "CPU time of a pod.", pod...),
			memory: gauge("pod_memory_working_set_bytes", "Working set of a pod.", pod...),
			swap:   gauge("pod_swap_usage_bytes", "Swap used by a pod.", pod...),
		},
		container: levels{
			cpu:    counter("container_cpu_usage_seconds_total", "CPU time of a container.", container...),
			memory: gauge("container_memory_working_set_bytes", "Working set of a container.", container...),
			swap:   gauge("container_swap_usage_bytes", "Swap used by a container.", container...),
		},
		swapLimit: gauge("container_swap_limit_bytes", "Swap that a container may use.", container...),
		started:   gauge("container_start_time_seconds", "Start of a container, Unix time.", container...),
		failed:    gauge("resource_scrape_error", "1 if the stats could not be read."),
		failedOld: gauge("scrape_error", "1 if the stats could not be read (older name of resource_scrape_error)."),
	}
}

// levels holds the metrics of the node, of pods or of containers.
type levels struct{ cpu, memory, swap metric }

func (l levels) put(s sink, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, swap *statsapi.SwapStats, labels ...string) {
	if cpu != nil {
		s.put(l.cpu, cpu.Time, cpu.UsageCoreNanoSeconds, nano, labels...)
	}
	if memory != nil {
		s.put(l.memory, memory.Time, memory.WorkingSetBytes, 1, labels...)
	}
	if swap != nil {
		s.put(l.swap, swap.Time, swap.SwapUsageBytes, 1, labels...)
	}
}

type resource struct {
	stats                Stats
	timeout              time.Duration
	node, pod, container levels
	swapLimit, started   metric
	failed, failedOld    metric
}

// Describe implements prometheus.Collector.
func (r *resource) Describe(ch chan<- *prometheus.Desc) {
	for _, l := range []levels{r.node, r.pod, r.container} {
		ch <- l.cpu.desc
		ch <- l.memory.desc
		ch <- l.swap.desc
	}
	for _, m := range []metric{r.swapLimit, r.started, r.failed, r.failedOld} {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (r *resource) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	s := sink(ch)
	sum, err := r.stats.Summary(ctx, true)
	failed := 0.0
	if err != nil {
		failed = 1
	}
	s.value(r.failed, time.Time{}, failed)
	s.value(r.failedOld, time.Time{}, failed)
	if err != nil {
		return
	}
	r.node.put(s, sum.Node.CPU, sum.Node.Memory, sum.Node.Swap)
	for _, p := range newest(sum.Pods) {
		r.pod.put(s, p.CPU, p.Memory, p.Swap, p.PodRef.Name, p.PodRef.Namespace)
		for i := range p.Containers {
			c := &p.Containers[i]
			labels := []string{c.Name, p.PodRef.Name, p.PodRef.Namespace}
			r.container.put(s, c.CPU, c.Memory, c.Swap, labels...)
			s.since(r.started, c.StartTime, labels...)
			if at, limit := swapLimit(c.Swap); limit != nil {
				s.put(r.swapLimit, at, limit, 1, labels...)
			}
		}
	}
}

// swapLimit returns the sum of used and available swap, if there is a limit.
func swapLimit(s *statsapi.SwapStats) (metav1.Time, *uint64) {
	if s == nil || s.SwapAvailableBytes == nil || s.SwapUsageBytes == nil {
		return metav1.Time{}, nil
	}
	limit := *s.SwapAvailableBytes + *s.SwapUsageBytes
	return s.Time, &limit
}
