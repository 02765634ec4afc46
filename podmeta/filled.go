package podmeta

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FillRequests has a list of requests name what only the limits do, as the API
// server has it, and returns it. The lists are not changed; what is returned may
// be requests itself.
func FillRequests(requests, limits v1.ResourceList) v1.ResourceList {
	own := true
	for name, q := range limits {
		if _, ok := requests[name]; ok {
			continue
		}
		if own {
			requests, own = maps.Clone(requests), false
			if requests == nil {
				requests = v1.ResourceList{}
			}
		}
		requests[name] = q.DeepCopy()
	}
	return requests
}

// FilledRequests is Requests of a pod that the API server has not seen: a
// container that has a limit and names no request takes the limit, and so does a
// pod of whose containers none requests the resource.
func FilledRequests(pod *v1.Pod) v1.ResourceList {
	spec := &pod.Spec
	filled := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: withRequests(spec.InitContainers), Containers: withRequests(spec.Containers),
	}}
	if spec.Resources != nil {
		limits := maps.Clone(spec.Resources.Limits)
		for name := range Requests(filled) {
			delete(limits, name)
		}
		filled.Spec.Resources = &v1.ResourceRequirements{Requests: FillRequests(spec.Resources.Requests, limits)}
	}
	filled.Spec.Overhead = spec.Overhead
	return Requests(filled)
}

// withRequests are containers, as far as requests go.
func withRequests(list []v1.Container) []v1.Container {
	out := make([]v1.Container, len(list))
	for i := range list {
		out[i].RestartPolicy = list[i].RestartPolicy
		out[i].Resources.Requests = FillRequests(list[i].Resources.Requests, list[i].Resources.Limits)
	}
	return out
}

// LeftOfMemory is a list of a node's resources with its memory less what is set
// aside for huge pages of the capacity: that is no memory for others. It is never
// below 0. The list is the caller's and is changed.
func LeftOfMemory(list, capacity v1.ResourceList) v1.ResourceList {
	memory, ok := list[v1.ResourceMemory]
	if !ok {
		return list
	}
	memory = memory.DeepCopy()
	for name, q := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			memory.Sub(q)
		}
	}
	if memory.Sign() < 0 {
		memory.Set(0)
	}
	list[v1.ResourceMemory] = memory
	return list
}
