package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Values of cpu.shares: the kernel's minimum and maximum, and the shares of one CPU (the
// kernel's sched-design and cgroup documents).
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
)

// The least CPU values that a cgroup can have, in milli-CPUs. A lower request or limit
// has the same value in the cgroup, so that it cannot be read back from there.
const (
	// The kernel's least CFS quota is 1 ms (sched-bwc). In a period of 100 ms this is 10 milli-CPUs.
	minQuotaMilli  = 10
	minSharesMilli = 2 // the milli-CPUs of minShares
)

// allocated returns the pod with its allocated resources.
func (in *Input) allocated() *v1.Pod {
	if in.Allocated != nil {
		return in.Allocated
	}
	return in.Pod
}

// granted returns the allocated resources of a container. Ephemeral containers have none.
func (in *Input) granted(c *v1.Container) *v1.ResourceRequirements {
	if in.Allocated != nil {
		for _, list := range [][]v1.Container{in.Allocated.Spec.Containers, in.Allocated.Spec.InitContainers} {
			if i := slices.IndexFunc(list, func(o v1.Container) bool { return o.Name == c.Name }); i >= 0 {
				return &list[i].Resources
			}
		}
	}
	return &c.Resources
}

// resizing reports whether a resize is in progress.
func (in *Input) resizing() bool {
	return slices.ContainsFunc(in.Resize, func(c v1.PodCondition) bool {
		return c.Type == v1.PodResizeInProgress && c.Status == v1.ConditionTrue
	})
}

// podResources sets the pod's allocated resources, and its effective pod-level resources. Runtimes
// do not report the effective ones: during a resize, the values from before are kept.
func podResources(in *Input, prev, st *v1.PodStatus) {
	// A shallow copy, since the overhead is removed.
	alone := v1.Pod{Spec: in.allocated().Spec}
	alone.Spec.Overhead = nil // allocatedResources do not contain it
	if requests := podmeta.Requests(&alone); len(requests) > 0 {
		st.AllocatedResources = requests
	}
	switch r := alone.Spec.Resources; {
	case r == nil:
	// A pod in a terminal phase is not resized.
	case in.resizing() && prev.Resources != nil && !podmeta.IsTerminal(st.Phase):
		st.Resources = prev.Resources.DeepCopy()
	default:
		st.Resources = r.DeepCopy()
	}
}

// effectiveResources returns the resources that are in effect. For a running container they are
// the values that the runtime reports. If the runtime reports none now, they are the values that
// it reported before for the same instance. Otherwise they are the granted values. During a
// resize, a single value that the runtime does not report keeps its former value; the runtime
// never reports the memory request.
//
// inPool means that the pod has pod-level resources: a container without limits is limited by the
// pod, and shows no limits.
func effectiveResources(granted *v1.ResourceRequirements, o *observed.Container, before *v1.ContainerStatus, resizing, inPool bool) *v1.ResourceRequirements {
	// Values that the runtime reports replace single granted values.
	res := granted.DeepCopy()
	if o.State != observed.Running {
		return res
	}
	var shown *v1.ResourceRequirements
	// Only from the same instance: another one may have had other resources.
	if before != nil && before.State.Running != nil && BareID(before.ContainerID) == BareID(o.ID) {
		shown = before.Resources
	}
	r := o.Resources
	if r == nil {
		if shown != nil {
			return shown.DeepCopy()
		}
		return res
	}
	// Without a resize, the granted values are in effect where the runtime reports no
	// others.
	if shown == nil || !resizing {
		shown = res
	}
	// No cgroup has a memory request, unless memory QoS sets one.
	keep(&res.Requests, shown.Requests, v1.ResourceMemory)
	effectiveRequest(res, shown, r.CPUShares)
	if !inPool || len(res.Limits) > 0 {
		effectiveLimits(res, shown, r)
	}
	return res
}

// effectiveRequest sets the CPU request in res that corresponds to shares. 1000 milli-CPUs
// are sharesPerCPU shares. It adds no request to a container without one.
func effectiveRequest(res, shown *v1.ResourceRequirements, shares int64) {
	if shares <= 0 {
		keep(&res.Requests, shown.Requests, v1.ResourceCPU)
		return
	}
	have, ok := res.Requests[v1.ResourceCPU]
	// Limited to the largest shares, since the product could overflow.
	asked := min(have.MilliValue(), maxShares*1000/sharesPerCPU)
	// Rounded up, since the conversion from milli-CPUs to shares rounds down.
	milli := (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
	// Several values in milli-CPUs have the same shares: a request with these shares
	// is kept.
	if ok && max(asked, milli) > minSharesMilli && max(asked*sharesPerCPU/1000, minShares) != shares {
		res.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
}

// effectiveLimits sets in res the limits that the runtime reports. The other limits come from
// shown.
func effectiveLimits(res, shown *v1.ResourceRequirements, r *observed.Resources) {
	if r.CPUQuota > 0 && r.CPUPeriod > 0 {
		milli := r.CPUQuota * 1000 / r.CPUPeriod
		// If both are at most the minimum, the quota was only raised to the kernel's
		// minimum.
		if max(milli, res.Limits.Cpu().MilliValue()) > minQuotaMilli {
			set(&res.Limits, v1.ResourceCPU, *resource.NewMilliQuantity(milli, resource.DecimalSI))
		}
	} else {
		keep(&res.Limits, shown.Limits, v1.ResourceCPU)
	}
	if r.MemoryLimit <= 0 {
		keep(&res.Limits, shown.Limits, v1.ResourceMemory)
	} else if res.Limits.Memory().Value() != r.MemoryLimit {
		// Only if it differs: an equal amount keeps the notation of the spec, as 1Gi.
		set(&res.Limits, v1.ResourceMemory, *resource.NewQuantity(r.MemoryLimit, resource.BinarySI))
	}
}

// set sets an amount in a list, which it creates if it is nil.
func set(list *v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = q
}

// keep copies the amount of the resource name from the list source to *list. If source has no
// amount, keep removes it from *list.
func keep(list *v1.ResourceList, source v1.ResourceList, name v1.ResourceName) {
	if q, ok := source[name]; ok {
		set(list, name, q.DeepCopy())
	} else {
		delete(*list, name)
	}
}
