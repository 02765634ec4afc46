package resources

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/internal/promshare"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// placementMetrics has the kubelet's metrics of CPUs, memory and NUMA nodes, with its names.
type placementMetrics struct {
	cfg    fit.PlacementConfig
	static *cpumgr.Static // nil under other CPU policies

	cpuRequests, cpuErrors       prometheus.Counter
	shared, exclusive            prometheus.Gauge
	perNode                      *prometheus.GaugeVec
	memoryRequests, memoryErrors prometheus.Counter
	requests, rejections         prometheus.Counter
	duration                     prometheus.Histogram
	aligned, unaligned           *prometheus.CounterVec
	counts                       managerCounts
}

// newPlacementMetrics returns the metrics of a node without allocations.
func newPlacementMetrics(cfg PlacementConfig, node fit.Placement) (*placementMetrics, error) {
	m := buildMetrics()
	m.cfg = cfg.Fit
	m.static, _ = node.CPU.(*cpumgr.Static)
	m.gauges(node.State.CPU)
	return m, promshare.Register(cfg.Metrics, append(m.counts.collectors(),
		m.cpuRequests, m.cpuErrors, m.shared, m.exclusive, m.perNode, m.memoryRequests, m.memoryErrors,
		m.requests, m.rejections, m.duration, m.aligned, m.unaligned)...)
}

func buildMetrics() *placementMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"scope", "boundary"})
	}
	return &placementMetrics{
		counts:      newManagerCounts(),
		cpuRequests: counter("kubelet_cpu_manager_pinning_requests_total", "Containers that requested exclusive CPUs."),
		cpuErrors:   counter("kubelet_cpu_manager_pinning_errors_total", "Containers that requested exclusive CPUs and were rejected."),
		shared: prometheus.NewGauge(gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"CPUs that containers without exclusive CPUs share, in thousandths, without the reserved CPUs.")),
		exclusive: prometheus.NewGauge(gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "Exclusive CPUs of containers.")),
		perNode: prometheus.NewGaugeVec(gauge("kubelet_cpu_manager_allocation_per_numa",
			"Exclusive CPUs of containers, by NUMA node."), []string{"numa_node"}),
		memoryRequests: counter("kubelet_memory_manager_pinning_requests_total", "Containers that requested exclusive memory."),
		memoryErrors:   counter("kubelet_memory_manager_pinning_errors_total", "Containers that requested exclusive memory and were rejected."),
		requests:       counter("kubelet_topology_manager_admission_requests_total", "Pods whose placement was decided."),
		rejections:     counter("kubelet_topology_manager_admission_errors_total", "Pods whose resources could not be placed."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms", Help: "Duration of the placement of a pod, in milliseconds.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 15), // the kubelet's
		}),
		aligned: counters("kubelet_container_aligned_compute_resources_count",
			"Containers and pods whose resources lie within one boundary, as the policy requires."),
		unaligned: counters("kubelet_container_aligned_compute_resources_failure_count",
			"Containers and pods whose resources do not lie within one boundary, although the policy requires it."),
	}
}

// gauges sets the gauges to the values of a state.
func (m *placementMetrics) gauges(s cpumgr.State) {
	if m.static == nil {
		return
	}
	st := m.static.Stats(s)
	m.shared.Set(float64(st.SharedMilliCPU))
	m.exclusive.Set(float64(st.Exclusive))
	for _, node := range st.Nodes {
		m.perNode.WithLabelValues(strconv.Itoa(node.Node)).Set(float64(node.CPUs))
	}
}

// admission counts a placed or a refused pod.
func (m *placementMetrics) admission(pod numa.Pod, r fit.Result, err error, took time.Duration) {
	m.requests.Inc()
	m.duration.Observe(float64(took) / float64(time.Millisecond))
	if m.cfg.TopologyPolicy == topology.NameSingleNUMANode {
		m.align(string(m.scope()), "numa_node", err == nil)
	}
	pooled := m.pooled(pod)
	if err != nil {
		m.rejections.Inc()
		m.refused(err, pooled)
		return
	}
	m.counts.given(pod, r, pooled)
	for i, c := range r.Containers {
		m.container(pod, pod.Containers[i], c)
	}
}

// container counts the allocation of a container. requested is the container with its requests,
// and result the container with its allocation.
func (m *placementMetrics) container(pod numa.Pod, requested numa.Container, result fit.Container) {
	if m.placesMemory() && pod.Guaranteed && len(result.Memory) > 0 {
		m.memoryRequests.Inc()
	}
	if m.static == nil || !result.Own || requested.WholeCPUs() == 0 {
		return
	}
	m.cpuRequests.Inc()
	a := m.static.Alignment(result.CPUs)
	if m.cfg.CPUOptions.FullPCPUsOnly {
		m.align("container", "physical_cpu", a.Cores)
	}
	if m.cfg.CPUOptions.PreferUncoreCache {
		m.align("container", "uncore_cache", a.Cache)
	}
}

// refused counts a rejected pod by the resource that it lacked.
func (m *placementMetrics) refused(err error, pooled bool) {
	var (
		few     *cpumgr.InsufficientError
		smt     *cpumgr.SMTAlignmentError
		empty   *cpumgr.EmptyPodSharedPoolError
		place   *memmgr.PlacementError
		emptyMB *memmgr.EmptyPodSharedPoolError
	)
	switch {
	case errors.As(err, &few), errors.As(err, &smt), errors.As(err, &empty):
		m.cpuRequests.Inc()
		m.cpuErrors.Inc()
		m.counts.refused("cpu", pooled)
	case errors.As(err, &place), errors.As(err, &emptyMB):
		m.memoryRequests.Inc()
		m.memoryErrors.Inc()
		m.counts.refused("memory", pooled)
	}
}

func (m *placementMetrics) align(scope, boundary string, ok bool) {
	if ok {
		m.aligned.WithLabelValues(scope, boundary).Inc()
	} else {
		m.unaligned.WithLabelValues(scope, boundary).Inc()
	}
}

func (m *placementMetrics) scope() topology.Scope {
	if m.cfg.TopologyScope == "" {
		return topology.ContainerScope
	}
	return m.cfg.TopologyScope
}

// placesMemory reports whether containers get exclusive memory.
func (m *placementMetrics) placesMemory() bool {
	return m.cfg.MemoryPolicy != "" && m.cfg.MemoryPolicy != memmgr.NoneName
}
