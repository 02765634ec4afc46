package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Of cpu.shares: the kernel's least and the most that is ever set, and how
// many stand for one CPU (the kernel's sched-design and cgroup documents).
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
)

// The least CPU values that a cgroup can have, in milli-CPUs. A lower request or limit
// has the same value in the cgroup, so that it cannot be read back from there.
const (
	// The kernel's least quota is 1 ms (sched-bwc).
	minQuotaMilli  = 10 // a quota of 1000 us in a period of 100 ms
	minSharesMilli = 2  // what minShares stands for
)

// allocated is the pod with what the node has granted.
func (in *Input) allocated() *v1.Pod {
	if in.Allocated != nil {
		return in.Allocated
	}
	return in.Pod
}

// granted are the resources that the node has granted to a container.
// Ephemeral containers cannot ask for resources: they have those of the spec,
// none.
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

// resizing reports whether what the node has granted is still being put into
// force.
func (in *Input) resizing() bool {
	return slices.ContainsFunc(in.Resize, func(c v1.PodCondition) bool {
		return c.Type == v1.PodResizeInProgress && c.Status == v1.ConditionTrue
	})
}

// podResources fills in what was granted to the pod as a whole, and what is in
// force of what it asks for as a whole. No runtime shows the latter, so while
// a resize is in progress that is what it was before.
func podResources(in *Input, prev, st *v1.PodStatus) {
	// A shallow copy: overhead is taken out of it, and the pod is the caller's.
	alone := v1.Pod{Spec: in.allocated().Spec}
	alone.Spec.Overhead = nil // is not the pod's to ask for
	if requests := podmeta.Requests(&alone); len(requests) > 0 {
		st.AllocatedResources = requests
	}
	switch r := alone.Spec.Resources; {
	case r == nil:
	// A pod that is over is not resized any more.
	case in.resizing() && prev.Resources != nil && !podmeta.IsTerminal(st.Phase):
		st.Resources = prev.Resources.DeepCopy()
	default:
		st.Resources = r.DeepCopy()
	}
}

// effectiveResources is what is in force: of a running container what the
// runtime shows, else what was granted. From a runtime that is silent, what it
// showed of the same container before. Single values that it does not show,
// and it never does the memory request, are as before while the node resizes
// the pod.
//
// A container without limits of its own in a pod that has some (inPool) runs under the
// pod's, and shows none.
func effectiveResources(granted *v1.ResourceRequirements, o *observed.Container, before *v1.ContainerStatus, resizing, inPool bool) *v1.ResourceRequirements {
	// The grant is the base: what the runtime shows replaces single values of it.
	res := granted.DeepCopy()
	if o.State != observed.Running {
		return res
	}
	var shown *v1.ResourceRequirements
	// Another instance was made with other resources, and its values say nothing
	// about this one.
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
	// Outside of a resize the grant is in force, as far as the runtime does not
	// contradict it.
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

// effectiveRequest is the CPU request that shares stand for. A request that
// the container has not stays out.
// Amounts are in milli-CPUs: 1000 of them are sharesPerCPU shares.
func effectiveRequest(res, shown *v1.ResourceRequirements, shares int64) {
	if shares <= 0 {
		keep(&res.Requests, shown.Requests, v1.ResourceCPU)
		return
	}
	have, ok := res.Requests[v1.ResourceCPU]
	// Bounded, as a larger one would overflow, and is never set.
	asked := min(have.MilliValue(), maxShares*1000/sharesPerCPU)
	// Rounded up, as the way from milli-CPUs to shares rounds down.
	milli := (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
	// Shares are coarser than milli-CPUs: what they came from stays.
	if ok && max(asked, milli) > minSharesMilli && max(asked*sharesPerCPU/1000, minShares) != shares {
		res.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
}

// effectiveLimits lays the limits that the runtime shows over res; what it does
// not show is that of shown.
func effectiveLimits(res, shown *v1.ResourceRequirements, r *observed.Resources) {
	if r.CPUQuota > 0 && r.CPUPeriod > 0 {
		milli := r.CPUQuota * 1000 / r.CPUPeriod
		// Where both are at the minimum or below, the quota was raised to what the
		// kernel takes.
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

// set makes an amount part of a list, which is made if it is nil.
func set(list *v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = v1.ResourceList{}
	}
	(*list)[name] = q
}

// keep makes one amount what it is in from, none if there is none.
func keep(list *v1.ResourceList, from v1.ResourceList, name v1.ResourceName) {
	if q, ok := from[name]; ok {
		set(list, name, q.DeepCopy())
	} else {
		delete(*list, name)
	}
}
