package memmgr

import (
	"github.com/nodewright/nodewright/numa"
	"slices"
)

// request returns the request of a container or, if container is -1, of the pod as a whole. The
// request is empty if the container or pod gets no memory assigned.
func (p *Static) request(pod numa.Pod, container int) []Amount {
	switch {
	case !pod.Guaranteed, pod.Resources != nil && !p.podLevel:
		return nil
	case container >= 0:
		return containerRequest(pod, container)
	case pod.Resources != nil:
		return amounts(*pod.Resources)
	}
	var holders []holder
	for i, c := range pod.Containers {
		holders = append(holders, holder{index: i, kind: c.Kind, blocks: blocksOn(0, amounts(c.Resources))})
	}
	var sum []Amount
	for _, b := range charges(holders) {
		sum = append(sum, b.Amount)
	}
	slices.SortFunc(sum, func(a, b Amount) int { return compareResources(a.Resource, b.Resource) })
	return sum
}

// containerRequest returns the request of a container. The request is empty if the container
// shares pod-level resources.
func containerRequest(pod numa.Pod, container int) []Amount {
	c := pod.Containers[container]
	if pod.Resources != nil && !c.Bound {
		return nil
	}
	return amounts(c.Resources)
}
