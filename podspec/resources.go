package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Limits and steps of cgroup values: cpu.shares and the CFS period and quota
// of the kernel's sched-bwc and cgroup documents, as the kubelet uses them.
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	quotaPeriod   = 100000 // microseconds
	minQuota      = 1000   // microseconds
	milliPerCPU   = 1000
	oomGuaranteed = -997
	oomBestEffort = 1000
	// A node-critical pod has at least this priority
	// (system-node-critical).
	nodeCriticalPriority = 2000001000
)

func shares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares)
}

func quota(milli int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(milli*quotaPeriod/milliPerCPU, minQuota)
}

// limitOf is a container's limit, or the pod's own if it has none.
func limitOf(pod *v1.Pod, c *v1.Container, name v1.ResourceName) (resource.Quantity, bool) {
	if q, ok := c.Resources.Limits[name]; ok {
		return q, true
	}
	if r := pod.Spec.Resources; r != nil {
		q, ok := r.Limits[name]
		return q, ok
	}
	return resource.Quantity{}, false
}

// containerResources are a container's limits in cgroup terms.
func containerResources(in Input, c *v1.Container, g Group) *runtimeapi.LinuxContainerResources {
	pod := in.Pod
	r := &runtimeapi.LinuxContainerResources{
		CpuPeriod:   quotaPeriod,
		OomScoreAdj: oomScoreAdj(in, c, g),
	}
	cpu, hasRequest := c.Resources.Requests[v1.ResourceCPU]
	if !hasRequest {
		cpu = c.Resources.Limits[v1.ResourceCPU]
	}
	r.CpuShares = shares(cpu.MilliValue())
	if q, ok := c.Resources.Limits[v1.ResourceCPU]; ok {
		r.CpuQuota = quota(q.MilliValue())
	}
	if q, ok := limitOf(pod, c, v1.ResourceMemory); ok {
		r.MemoryLimitInBytes = q.Value()
	}
	for name, q := range c.Resources.Limits {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			r.HugepageLimits = append(r.HugepageLimits, &runtimeapi.HugepageLimit{
				PageSize: pageSize(size), Limit: uint64(q.Value()),
			})
		}
	}
	if in.Node.CgroupV2 {
		// All of a container goes when one of its processes does (KEP-3958's
		// default).
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// pageSize turns 2Mi into the kernel's 2MB.
func pageSize(s string) string { return strings.TrimSuffix(s, "i") + "B" }

// oomScoreAdj says how soon the kernel kills a container when memory is short
// (KEP: QoS resource isolation; proc(5) oom_score_adj).
func oomScoreAdj(in Input, c *v1.Container, g Group) int64 {
	pod := in.Pod
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCriticalPriority {
		return oomGuaranteed
	}
	switch podmeta.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	adj := burstableOOM(in, c.Resources.Requests.Memory().Value())
	if g == Init && podmeta.IsSidecar(c) {
		// A sidecar is not to die before what it serves.
		least := int64(-1)
		for i := range pod.Spec.Containers {
			if req := pod.Spec.Containers[i].Resources.Requests.Memory().Value(); least < 0 || req < least {
				least = req
			}
		}
		adj = min(adj, burstableOOM(in, least))
	}
	return adj
}

func burstableOOM(in Input, request int64) int64 {
	capacity := in.Node.Capacity.Memory().Value()
	if capacity <= 0 {
		return oomBestEffort - 1
	}
	adj := 1000 - 1000*(request+shareOfPod(in.Pod))/capacity
	switch least := int64(1000 + oomGuaranteed); {
	case adj < least:
		return least
	case adj == oomBestEffort:
		return adj - 1
	default:
		return adj
	}
}

// shareOfPod is a container's equal share of what the pod itself requests
// beyond its containers.
func shareOfPod(pod *v1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	rest := pod.Spec.Resources.Requests.Memory().Value()
	n := int64(len(pod.Spec.Containers))
	for i := range pod.Spec.Containers {
		rest -= pod.Spec.Containers[i].Resources.Requests.Memory().Value()
	}
	for i := range pod.Spec.InitContainers {
		if rp := pod.Spec.InitContainers[i].RestartPolicy; rp != nil {
			rest -= pod.Spec.InitContainers[i].Resources.Requests.Memory().Value()
			n++
		}
	}
	if rest <= 0 || n == 0 {
		return 0
	}
	return rest / n
}

// podResources are the sums a sandbox is told of, for runtimes that size a
// virtual machine by them (KEP-2625).
func podResources(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	var request, limit, memory int64
	for i := range pod.Spec.Containers {
		r := pod.Spec.Containers[i].Resources
		request += r.Requests.Cpu().MilliValue()
		limit += r.Limits.Cpu().MilliValue()
		memory += r.Limits.Memory().Value()
	}
	return &runtimeapi.LinuxContainerResources{
		CpuPeriod: quotaPeriod, CpuQuota: quota(limit), CpuShares: shares(request), MemoryLimitInBytes: memory,
	}
}

func overhead(pod *v1.Pod) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{}
	if len(pod.Spec.Overhead) > 0 {
		cpu := pod.Spec.Overhead.Cpu().MilliValue()
		r.CpuPeriod, r.CpuQuota, r.CpuShares = quotaPeriod, quota(cpu), shares(cpu)
		r.MemoryLimitInBytes = pod.Spec.Overhead.Memory().Value()
	}
	return r
}
