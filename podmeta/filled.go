package podmeta

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// FillRequests adds a request for each resource that has a limit and no request. As in the API
// server, the request is the limit. The lists are not changed; the result may be requests itself.
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

// FilledRequests is Requests for a pod without the API server's defaults: a missing
// request of a container is its limit. A missing request of the pod is the pod's limit,
// if none of its containers requests the resource.
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

// withRequests returns containers with filled requests and the restart policies of list;
// all other fields are empty.
func withRequests(list []v1.Container) []v1.Container {
	out := make([]v1.Container, len(list))
	for i := range list {
		out[i].RestartPolicy = list[i].RestartPolicy
		out[i].Resources.Requests = FillRequests(list[i].Resources.Requests, list[i].Resources.Limits)
	}
	return out
}

// LeftOfMemory subtracts the huge pages in capacity from the memory in list, since they cannot be
// used as other memory. The result is at least 0. It changes list and returns it.
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
