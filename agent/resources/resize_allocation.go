package resources

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podruntime"
)

// allocation are the resources that a pod has been allocated, as its record has
// them. It is not changed once it is made.
type allocation struct {
	Pod        *v1.ResourceRequirements           `json:"pod,omitempty"`
	Containers map[string]v1.ResourceRequirements `json:"containers"`
}

// allocationOf is the allocation that a pod's spec asks for.
func allocationOf(pod *v1.Pod) *allocation {
	a := &allocation{Pod: pod.Spec.Resources, Containers: map[string]v1.ResourceRequirements{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			a.Containers[list[i].Name] = list[i].Resources
		}
	}
	return a
}

// madeWith is what a pod's running containers were made with; of others, what
// the spec asks for. known reports whether there are any.
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

// apply returns pod with this allocation: itself, if that is what it asks for. A
// container that is not in the allocation is new, and has what it asks for.
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

// differs reports whether a pod asks for anything else.
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

// same compares requests and limits; claims cannot be resized.
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
