package resources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podruntime"
)

// allocation has the allocated resources of a pod, as in its record. It is immutable.
type allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

// allocationOf returns the allocation that a pod's spec requests.
func allocationOf(pod *v1.Pod) *allocation {
	a := &allocation{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = list[i].Resources
		}
	}
	return a
}

// madeWith returns the resources with which a pod's running containers were created. For
// containers that do not run, the result has the requested resources. known reports whether any
// running container was observed.
func madeWith(pod *v1.Pod, obs *observed.Pod) (a *allocation, known bool) {
	a = allocationOf(pod)
	for name := range a.Containers {
		o := obs.Newest(name)
		if o == nil || o.State != observed.Running {
			continue
		}
		if r, ok := podruntime.MadeWith(o); ok {
			a.Containers[name], known = r, true
		}
	}
	return a, known
}

// apply returns pod with this allocation, or pod itself if it requests the same. A container that
// is missing in the allocation is new, and gets the requested resources.
func (a *allocation) apply(pod *v1.Pod) *v1.Pod {
	out := pod
	copied := func() *v1.Pod {
		if out == pod {
			out = pod.DeepCopy()
		}
		return out
	}
	if !samePodLevel(a.Pod, pod.Spec.Resources) {
		copied().Spec.Resources = a.Pod.DeepCopy()
	}
	each := func(list []v1.Container, of func(*v1.Pod) []v1.Container) {
		for i := range list {
			r, ok := a.Containers[list[i].Name]
			if ok && !same(r, list[i].Resources) {
				c := &of(copied())[i]
				c.Resources.Requests, c.Resources.Limits = r.Requests.DeepCopy(), r.Limits.DeepCopy()
			}
		}
	}
	each(pod.Spec.InitContainers, func(p *v1.Pod) []v1.Container { return p.Spec.InitContainers })
	each(pod.Spec.Containers, func(p *v1.Pod) []v1.Container { return p.Spec.Containers })
	return out
}

// differs reports whether a pod requests another allocation.
func (a *allocation) differs(pod *v1.Pod) bool { return a.apply(pod) != pod }

func samePodLevel(a, b *v1.ResourceRequirements) bool {
	var none v1.ResourceRequirements
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	return same(*a, *b)
}

// same reports whether requests and limits are equal. It ignores claims, which cannot
// be resized.
func same(a, b v1.ResourceRequirements) bool {
	return sameList(a.Requests, b.Requests) && sameList(a.Limits, b.Limits)
}

func sameList(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, p := range a {
		if q, ok := b[name]; !ok || p.Cmp(q) != 0 {
			return false
		}
	}
	return true
}
