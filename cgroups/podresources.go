package cgroups

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/podmeta"
)

// PodOptions say how pods' requests and limits become values of a cgroup. The
// zero value enforces CPU limits and nothing else that is optional.
type PodOptions struct {
	// NoCPUQuota leaves CPU limits without effect; CPUPeriod is what they are
	// measured in, 0 means 100ms.
	NoCPUQuota bool
	CPUPeriod  time.Duration
	// Pids is how many processes a pod may have; 0 and less set no limit.
	Pids int64
	// ExclusiveCPUs reports that a pod has CPUs of its own, which a quota would
	// only take time from. Nil means that none has. It is called during Ensure and
	// resizes, from any goroutine, and must not block for long.
	ExclusiveCPUs func(*v1.Pod) bool
	// ReserveMemory protects what pods request from being reclaimed, on
	// cgroup v2 (KEP-2570, policy TieredReservation).
	ReserveMemory bool
}

// OfPod are the resources of the cgroup that holds all containers of a pod.
// The pod is not changed. It looks at no machine: values that a machine cannot
// take are left out when they are written.
func OfPod(pod *v1.Pod, o PodOptions) Resources {
	class := podmeta.QOS(pod)
	requests := podmeta.FilledRequests(pod)
	// Huge pages have to be requested: sizes that the pod does not name are
	// limited to 0.
	zero := int64(0)
	out := Resources{CPUShares: ptr(sharesOf(milli(requests.Cpu()))), OtherHugepages: &zero}
	if class == v1.PodQOSBestEffort {
		out.CPUShares = ptr(uint64(minShares))
	}
	limits, cpuLimited, memoryLimited := limitsOf(pod)
	// The class says that all limits are there, whatever the look at single
	// containers finds.
	if class == v1.PodQOSGuaranteed {
		cpuLimited, memoryLimited = true, true
	}
	// A quota below the sum of what containers may use would hold back one that
	// has no limit; that is why every container needs one.
	if cpuLimited && class != v1.PodQOSBestEffort {
		period := uint64(defaultPeriod)
		if us := o.CPUPeriod.Microseconds(); us > 0 {
			period = uint64(us)
		}
		quota := quotaOf(milli(limits.Cpu()), period)
		// Unlimited is written, rather than nothing, to take away a quota from
		// before.
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
	// Requests and limits of huge pages are the same; the API server sees to it.
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

// limitsOf returns what a pod's containers may use together, its overhead
// included, and whether each of them has a limit of cpu and of memory, or the
// pod itself.
func limitsOf(pod *v1.Pod) (limits v1.ResourceList, cpu, memory bool) {
	cpu, memory = true, true
	// The limits are put in the place of requests of a made-up pod, so that the
	// rules for summing up init containers and sidecars are applied to them too.
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
	// A limit of the pod holds all its containers (KEP-2837), so that none of them
	// needs its own.
	if r := pod.Spec.Resources; r != nil {
		summed.Spec.Resources = &v1.ResourceRequirements{Requests: r.Limits}
		cpu = cpu || !r.Limits.Cpu().IsZero()
		memory = memory || !r.Limits.Memory().IsZero()
	}
	limits = podmeta.Requests(summed)
	// Overhead widens a limit, and makes none.
	for name, q := range pod.Spec.Overhead {
		if have, ok := limits[name]; ok && !have.IsZero() {
			have.Add(q)
			limits[name] = have
		}
	}
	return limits, cpu, memory
}

// milli is a quantity in thousandths, or the most that an int64 holds.
// MilliValue would overflow for larger quantities.
func milli(q *resource.Quantity) int64 {
	const most = 1<<63 - 1
	if q.CmpInt64(most/milliPerCPU) > 0 {
		return most
	}
	return q.MilliValue()
}

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) *T { return &v }
