package cgroups

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// PodOptions configures how requests and limits of pods become values of a cgroup.
// The zero value enforces CPU limits and nothing else that is optional.
type PodOptions struct {
	// NoCPUQuota ignores CPU limits. CPUPeriod is the period of quotas. The default is 100 ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// Pids is the maximum number of processes of a pod. If it is 0 or negative, there is no
	// limit.
	Pids int64
	// ExclusiveCPUs reports whether a pod has exclusive CPUs; such a pod gets no quota. If it is
	// nil, no pod has any. It is called during Ensure and resizes, from any goroutine, and must
	// not block for long.
	ExclusiveCPUs func(*v1.Pod) bool
	// ReserveMemory protects the memory that pods request from being reclaimed, on
	// cgroup v2 (KEP-2570, policy TieredReservation).
	ReserveMemory bool
}

// OfPod returns the resources of the cgroup that contains all containers of a pod.
// The pod is not changed. The result does not depend on the machine: values that it
// does not support are left out when they are written.
func OfPod(pod *v1.Pod, o PodOptions) Resources {
	class := podmeta.QOS(pod)
	requests := podmeta.FilledRequests(pod)
	// Huge pages have to be requested: sizes that the pod does not name are limited
	// to 0.
	zero := int64(0)
	out := Resources{CPUShares: ptr(sharesOf(milli(requests.Cpu()))), OtherHugepages: &zero}
	if class == v1.PodQOSBestEffort {
		out.CPUShares = ptr(uint64(minShares))
	}
	limits, cpuLimited, memoryLimited := limitsOf(pod)
	// The class implies that all limits are set, whatever single containers name.
	if class == v1.PodQOSGuaranteed {
		cpuLimited, memoryLimited = true, true
	}
	// Only if every container has a limit: a quota of the sum would limit a
	// container that has none.
	if cpuLimited && class != v1.PodQOSBestEffort {
		period := uint64(defaultPeriod)
		if us := o.CPUPeriod.Microseconds(); us > 0 {
			period = uint64(us)
		}
		quota := quotaOf(milli(limits.Cpu()), period)
		// Unlimited is written, rather than nothing, to remove an earlier quota.
		if o.NoCPUQuota || o.ExclusiveCPUs != nil && o.ExclusiveCPUs(pod) {
			quota = Unlimited
		}
		if quota != 0 {
			out.CPUQuota, out.CPUPeriod = &quota, &period
		}
	}
	if bytes := limits.Memory().Value(); memoryLimited && bytes > 0 && class != v1.PodQOSBestEffort {
		out.Memory = &bytes
	}
	if o.Pids > 0 {
		out.Pids = ptr(o.Pids)
	}
	// Requests and limits of huge pages are equal; the API server checks that.
	out.Hugepages = hugepagesOf(requests)
	// memory.min is never reclaimed, and memory.low only if nothing unprotected is
	// left to reclaim.
	if bytes := requests.Memory().Value(); o.ReserveMemory && bytes > 0 {
		file := memoryLow
		if class == v1.PodQOSGuaranteed {
			file = memoryMin
		}
		out.Unified = map[string]string{file: strconv.FormatInt(bytes, 10)}
	}
	return out
}

// limitsOf returns the limits of a pod, its overhead included, and whether cpu and
// memory are limited: by the pod itself or by each of its containers.
func limitsOf(pod *v1.Pod) (limits v1.ResourceList, cpu, memory bool) {
	cpu, memory = true, true
	// The limits are put in the place of requests of a made-up pod, so that the
	// rules for init containers and sidecars apply to them too.
	as := func(list []v1.Container) []v1.Container {
		out := make([]v1.Container, len(list))
		for i := range list {
			out[i].RestartPolicy = list[i].RestartPolicy
			out[i].Resources.Requests = list[i].Resources.Limits
			cpu = cpu && !list[i].Resources.Limits.Cpu().IsZero()
			memory = memory && !list[i].Resources.Limits.Memory().IsZero()
		}
		return out
	}
	summed := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: as(pod.Spec.InitContainers), Containers: as(pod.Spec.Containers),
	}}
	// A limit of the pod limits all its containers (KEP-2837), so that none of them
	// needs its own.
	if r := pod.Spec.Resources; r != nil {
		summed.Spec.Resources = &v1.ResourceRequirements{Requests: r.Limits}
		cpu = cpu || !r.Limits.Cpu().IsZero()
		memory = memory || !r.Limits.Memory().IsZero()
	}
	limits = podmeta.Requests(summed)
	// Overhead raises a limit that is set.
	for name, q := range pod.Spec.Overhead {
		if have, ok := limits[name]; ok && !have.IsZero() {
			have.Add(q)
			limits[name] = have
		}
	}
	return limits, cpu, memory
}

// milli returns a quantity in thousandths, at most the largest int64: MilliValue
// would overflow.
func milli(q *resource.Quantity) int64 {
	const most = 1<<63 - 1
	if q.CmpInt64(most/milliPerCPU) > 0 {
		return most
	}
	return q.MilliValue()
}

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }
