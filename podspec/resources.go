package podspec

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/podmeta"
)

// Limits and steps of the cgroup values cpu.shares, CFS period and CFS quota, from the kernel's
// documents sched-bwc and cgroups. The kubelet uses the same.
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
	quotaPeriod  = 100000 // microseconds; the default period
	minQuota     = 1000   // microseconds
	milliPerCPU  = 1000
	// oomGuaranteed is just above the kubelet's own score of -999. The kernel's range is -1000 to
	// 1000 (proc(5)).
	oomGuaranteed = -997
	oomBestEffort = 1000
	// nodeCriticalPriority is the priority of system-node-critical. Pods with this priority or a
	// higher one are node-critical.
	nodeCriticalPriority = 2000001000
)

// milli returns a quantity in thousandths, or the largest int64.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/milliPerCPU) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// shares converts milli-CPUs to cpu.shares, 1024 per CPU, within the kernel's limits.
func shares(milli int64) int64 {
	milli = min(milli, maxShares*milliPerCPU/sharesPerCPU) // values above the maximum would overflow in the product
	return max(milli*sharesPerCPU/milliPerCPU, minShares)
}

// quota returns the CPU time per period, in microseconds, for a limit in milli-CPUs. It is at
// least 1 ms, the kernel's minimum (sched-bwc). If milli is 0, there is no limit and the quota is
// 0.
func quota(milli, period int64) int64 {
	if milli <= 0 {
		return 0
	}
	// Limited, so that the product does not overflow to a small or negative quota.
	milli = min(milli, math.MaxInt64/period)
	return max(milli*period/milliPerCPU, minQuota)
}

// cpuLimit sets the CFS quota and period for a CPU limit in milli-CPUs. A limit of 0 means no
// limit.
func cpuLimit(n *Node, limit int64, r *runtimeapi.LinuxContainerResources) {
	if n.NoCPUQuota {
		return
	}
	// Like the kubelet, set the period even without a limit: a resize may add one.
	r.CpuPeriod = quotaPeriod
	if us := n.CPUPeriod.Microseconds(); us > 0 {
		r.CpuPeriod = us
	}
	r.CpuQuota = quota(limit, r.CpuPeriod)
}

// pinned sets the CPUs and memory nodes of a container. A quota of -1 means no quota
// (sched-bwc).
func pinned(p Pinning, r *runtimeapi.LinuxContainerResources) {
	r.CpusetCpus, r.CpusetMems = p.CPUs, p.MemoryNodes
	// Without a period the runtime writes no quota.
	if p.NoQuota && r.CpuPeriod != 0 {
		r.CpuQuota = -1
	}
}

// limitOf returns a container's limit, or the pod-level limit if the container has none
// (KEP-2837). The second result is false if neither exists.
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

// Resources returns the cgroup values of a container, with r in place of its own requirements. It
// is used to plan resizes.
func Resources(in Input, c *v1.Container, r v1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	_, group, _, err := Find(in.Pod, c.Name)
	if err != nil {
		group = Regular // a container that is not in the spec counts as a regular one
	}
	as := *c
	as.Resources = r
	return containerResources(in, &as, group)
}

// containerResources returns the cgroup values of a container.
func containerResources(in Input, c *v1.Container, g Group) *runtimeapi.LinuxContainerResources {
	pod := in.Pod
	r := &runtimeapi.LinuxContainerResources{OomScoreAdj: oomScoreAdj(in, c, g)}
	limit, _ := limitOf(pod, c, v1.ResourceCPU)
	// An unset request equals the limit.
	cpu, hasRequest := c.Resources.Requests[v1.ResourceCPU]
	if !hasRequest {
		cpu = limit
	}
	r.CpuShares = shares(milli(cpu))
	cpuLimit(&in.Node, milli(limit), r)
	// Must come after the quota, which NoQuota removes.
	pinned(in.Pinned[c.Name], r)
	if q, ok := limitOf(pod, c, v1.ResourceMemory); ok {
		r.MemoryLimitInBytes = q.Value()
	}
	r.HugepageLimits = hugepages(in.Node.Capacity, pod, c)
	if in.Node.CgroupV2 {
		if !in.Node.SingleProcessOOMKill {
			// The kernel kills all processes of the container, not only one that others may wait
			// for (cgroup-v2, memory.oom.group).
			unifiedOf(r)["memory.oom.group"] = "1"
		}
		memoryQoS(in, c, r)
	}
	swap(in, c, r)
	return r
}

// unifiedOf returns r.Unified, the cgroup v2 values, and creates the map on first use.
func unifiedOf(r *runtimeapi.LinuxContainerResources) map[string]string {
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	return r.Unified
}

// memoryQoS protects a container's memory request, and throttles the container before it reaches
// its limit (memory.min, memory.low and memory.high of the kernel's cgroup-v2 document).
func memoryQoS(in Input, c *v1.Container, r *runtimeapi.LinuxContainerResources) {
	q := in.Node.MemoryQoS
	if q == nil {
		return
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	// Zeros are written too, since a resize may lower an earlier value.
	guarded := map[string]int64{"memory.min": 0, "memory.low": 0}
	if q.Reserve && request > 0 {
		// Memory below memory.min is never reclaimed; memory below memory.low only if nothing
		// else is left.
		if podmeta.QOS(in.Pod) == v1.PodQOSGuaranteed {
			guarded["memory.min"] = request
		} else {
			guarded["memory.low"] = request
		}
	}
	for file, bytes := range guarded {
		unifiedOf(r)[file] = strconv.FormatInt(bytes, 10)
	}
	if request == limit {
		// Request and limit are equal, so no throttling is possible between them.
		return
	}
	if limit == 0 {
		limit = in.Node.Allocatable.Memory().Value()
	}
	if q.Throttling == 0 {
		return
	}
	page := q.PageSize
	if page == 0 {
		page = 4096
	}
	// In whole pages, rounded down: the formula of KEP-2570.
	high := (request + int64(q.Throttling*float64(limit-request))) / page * page
	if high > request {
		unifiedOf(r)["memory.high"] = strconv.FormatInt(high, 10)
	}
}

// swap sets a container's limit of memory plus swap (KEP-2400). It does nothing if Node.Swap is
// nil, which means that cgroups do not account for swap.
func swap(in Input, c *v1.Container, r *runtimeapi.LinuxContainerResources) {
	s := in.Node.Swap
	switch {
	case s == nil:
	case !in.Node.CgroupV2:
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes // the limit covers memory and swap: no swap
	default:
		unifiedOf(r)["memory.swap.max"] = strconv.FormatInt(swapShare(in, c), 10)
	}
}

// swapShare returns a container's share of the node's swap, in bytes. The share is in proportion
// to the container's memory request. A container whose memory request equals its limit gets no
// swap.
func swapShare(in Input, c *v1.Container) int64 {
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	memory := in.Node.Capacity.Memory().Value()
	// Critical pods must not be slowed down by swap. BestEffort pods have no request to compute a
	// share from.
	if !in.Node.Swap.Limited || podmeta.IsCritical(in.Pod) || podmeta.QOS(in.Pod) != v1.PodQOSBurstable ||
		request == limit || request > memory || memory <= 0 {
		return 0
	}
	return int64(float64(request) / float64(memory) * float64(in.Node.Swap.Capacity))
}

// hugepages returns the limits for all page sizes of the node, the container and its pod,
// smallest first. A size that the container does not limit has the pod's limit, or 0 without one.
func hugepages(capacity v1.ResourceList, pod *v1.Pod, c *v1.Container) []*runtimeapi.HugepageLimit {
	bySize := map[int64]int64{}
	for name := range capacity {
		if size, ok := pageSize(name); ok {
			// An unset limit is 0, since the scheduler accounts for huge pages.
			bySize[size] = 0
		}
	}
	// Compared as numbers, since 2Mi and 2048Ki are the same size.
	own := map[int64]bool{}
	for name, q := range c.Resources.Limits {
		if size, ok := pageSize(name); ok {
			bySize[size] += q.Value()
			own[size] = true
		}
	}
	if r := pod.Spec.Resources; r != nil {
		for name, q := range r.Limits {
			if size, ok := pageSize(name); ok && !own[size] {
				bySize[size] += q.Value()
			}
		}
	}
	var out []*runtimeapi.HugepageLimit
	for _, size := range slices.Sorted(maps.Keys(bySize)) {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: kernelSize(size), Limit: uint64(bySize[size])})
	}
	return out
}

// pageSize returns the page size in bytes from a resource name such as hugepages-2Mi.
func pageSize(name v1.ResourceName) (int64, bool) {
	s, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
	if !ok {
		return 0, false
	}
	q, err := quantity.Parse(s)
	return q.Value(), err == nil && q.Value() > 0
}

// kernelSize formats a page size like the hugetlb controller: 2MB for 2097152.
func kernelSize(size int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	n := 0
	for size%1024 == 0 && n < len(units)-1 {
		size, n = size/1024, n+1
	}
	return strconv.FormatInt(size, 10) + units[n]
}

// oomScoreAdj returns the oom_score_adj of a container (proc(5)): the kernel kills containers
// with higher values first.
func oomScoreAdj(in Input, c *v1.Container, g Group) int64 {
	pod := in.Pod
	// The node does not work without these pods: they are killed last, whatever they request.
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCriticalPriority {
		return oomGuaranteed
	}
	switch podmeta.QOS(pod) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	}
	// Burstable: the more memory a container requests, the lower its score.
	adj := burstableOOM(in, c.Resources.Requests.Memory().Value())
	if g == Init && podmeta.IsSidecar(c) {
		// A sidecar must not be killed before the containers that it serves.
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

// burstableOOM returns the score of a Burstable container with that memory request, in bytes. It
// is strictly between the scores of Guaranteed and BestEffort.
func burstableOOM(in Input, request int64) int64 {
	const least = 1000 + oomGuaranteed
	capacity := in.Node.Capacity.Memory().Value()
	// Unknown capacity: use the highest score of a Burstable container.
	if capacity <= 0 {
		return oomBestEffort - 1
	}
	share := shareOfPod(in.Pod)
	// Compared first, because the product below would overflow.
	if request >= capacity-share {
		return least
	}
	adj := 1000 - 1000*(request+share)/capacity
	return min(max(adj, least), oomBestEffort-1)
}

// shareOfPod returns a container's share of the pod-level memory request that exceeds the
// requests of the containers. All containers have the same share.
func shareOfPod(pod *v1.Pod) int64 {
	n := int64(len(pod.Spec.InitContainers) + len(pod.Spec.Containers))
	if pod.Spec.Resources == nil || n == 0 {
		return 0
	}
	have := podmeta.Sum(pod, podmeta.RequestsOf)
	rest := pod.Spec.Resources.Requests.Memory().Value() - have.Memory().Value()
	return max(rest/n, 0)
}

// PodResources returns the cgroup values of a whole pod without its overhead: the pod-level
// resources, or the sums of its containers. The sandbox request contains these values and the
// overhead, for runtimes that size a virtual machine (KEP-2625).
func PodResources(in Input) *runtimeapi.LinuxContainerResources {
	pod := in.Pod
	requests, limits := podmeta.Sum(pod, podmeta.RequestsOf), podmeta.Sum(pod, podmeta.LimitsOf)
	if r := pod.Spec.Resources; r != nil {
		maps.Copy(requests, r.Requests)
		maps.Copy(limits, r.Limits)
	}
	out := &runtimeapi.LinuxContainerResources{
		CpuShares: shares(milli(*requests.Cpu())), MemoryLimitInBytes: limits.Memory().Value(),
	}
	// Containers without a limit do not count in the sum.
	cpuLimit(&in.Node, milli(*limits.Cpu()), out)
	return out
}

// Overhead returns the cgroup values of the pod's overhead.
func Overhead(in Input) *runtimeapi.LinuxContainerResources {
	pod := in.Pod
	r := &runtimeapi.LinuxContainerResources{}
	if len(pod.Spec.Overhead) > 0 {
		// The overhead is both request and limit (KEP-688).
		cpu := milli(*pod.Spec.Overhead.Cpu())
		r.CpuShares = shares(cpu)
		cpuLimit(&in.Node, cpu, r)
		r.MemoryLimitInBytes = pod.Spec.Overhead.Memory().Value()
	}
	return r
}
