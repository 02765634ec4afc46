package cgroups

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// requestsOf is what a pod takes of the node. A container that has a limit and
// names no request takes the limit, and so does a pod of whose containers none
// requests the resource: the API server fills both in, but not every pod has
// been there.
func requestsOf(pod *v1.Pod) v1.ResourceList {
	spec := &pod.Spec
	lacks := func(c v1.Container) bool { return lacksRequest(c.Resources) }
	if !slices.ContainsFunc(spec.Containers, lacks) && !slices.ContainsFunc(spec.InitContainers, lacks) &&
		(spec.Resources == nil || !lacksRequest(*spec.Resources)) {
		return podmeta.Requests(pod)
	}
	filled := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: filledIn(spec.InitContainers), Containers: filledIn(spec.Containers), Overhead: spec.Overhead,
	}}
	if spec.Resources != nil {
		r := *spec.Resources
		r.Requests = maps.Clone(r.Requests)
		asks := podmeta.Requests(&v1.Pod{Spec: v1.PodSpec{
			InitContainers: filled.Spec.InitContainers, Containers: filled.Spec.Containers,
		}})
		for name, q := range r.Limits {
			_, own := r.Requests[name]
			if _, theirs := asks[name]; !own && !theirs {
				if r.Requests == nil {
					r.Requests = v1.ResourceList{}
				}
				r.Requests[name] = q
			}
		}
		filled.Spec.Resources = &r
	}
	return podmeta.Requests(filled)
}

func lacksRequest(r v1.ResourceRequirements) bool {
	for name := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			return true
		}
	}
	return false
}

// filledIn are the containers, as far as requests go, with limits for those
// that they do not name.
func filledIn(list []v1.Container) []v1.Container {
	out := make([]v1.Container, len(list))
	for i := range list {
		out[i].RestartPolicy = list[i].RestartPolicy
		requests := v1.ResourceList{}
		maps.Copy(requests, list[i].Resources.Limits)
		maps.Copy(requests, list[i].Resources.Requests)
		out[i].Resources.Requests = requests
	}
	return out
}
