package cpumgr

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Resize returns the state in which a container has CPUs for a new request. milliCPU is the
// request in thousandths of a CPU. pod still has the old request.
//
// As in the kubelet, a Guaranteed pod cannot change its CPU requests: the error is a
// [*ResizeError]. With Options.ResizeExclusive the resize is possible, and the container keeps as
// many of its CPUs as possible: to grow, it gets CPUs that are near its own; to shrink, it keeps
// a part of its own. The resize of a pod with pod-level CPUs is rejected even with this option.
// After an error the state is unchanged.
func (p *Static) Resize(s State, pod numa.Pod, container int, milliCPU int64) (State, error) {
	if container < 0 || container >= len(pod.Containers) {
		return s, fmt.Errorf("container index %d: pod %s has only %d containers", container, pod.UID, len(pod.Containers))
	}
	c := pod.Containers[container]
	// Pods of other QoS classes have no exclusive CPUs, neither before nor after.
	if !pod.Guaranteed || c.MilliCPU == milliCPU {
		return s, nil
	}
	infeasible := func(why string) error {
		return &ResizeError{Container: c.Name, From: c.MilliCPU, To: milliCPU, Why: why}
	}
	has, assigned := s.pods[pod.UID].container(c.Name)
	switch {
	case !p.o.ResizeExclusive:
		return s, infeasible("CPU policy static does not resize containers of Guaranteed pods")
	case !s.pods[pod.UID].Pool.Empty():
		return s, infeasible("the pod has CPUs of its own, which were divided when it was admitted")
	}
	resized := c
	resized.MilliCPU = milliCPU
	n := p.wants(pod, resized)
	// The new request is not a whole number, so the container shares from now on.
	if n == 0 {
		return s.Without(pod.UID, c.Name), nil
	}
	own := ContainerCPUs{Name: c.Name, Kind: c.Kind}
	var err error
	switch {
	case !assigned:
		own.CPUs, err = p.take(s, pod.UID, n, numa.Hint{})
	case n <= has.CPUs.Len():
		own.CPUs, err = p.shrink(has.CPUs, n)
	default:
		own.CPUs, err = p.grow(s, pod.UID, has.CPUs, n)
	}
	if err != nil {
		return s, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return s.with(pod.UID, own), nil
}

// shrink chooses n of a container's CPUs, by the rules for an allocation.
func (p *Static) shrink(held numa.CPUSet, n int) (numa.CPUSet, error) {
	if p.o.FullPCPUsOnly {
		if err := p.checkSMT(n, held); err != nil {
			return numa.CPUSet{}, err
		}
	}
	return p.l.take(held, n, 0, p.o)
}

// grow adds free CPUs to a container's until there are n, first from the same nodes.
func (p *Static) grow(s State, podUID string, held numa.CPUSet, n int) (numa.CPUSet, error) {
	if p.o.FullPCPUsOnly {
		if err := p.checkSMT(n, s.shared.Minus(p.siblings).Union(s.Reusable(podUID)).Union(held)); err != nil {
			return numa.CPUSet{}, err
		}
	}
	var near numa.NodeSet
	for _, u := range p.l.nodes {
		if held.IntersectLen(u.cpus) > 0 {
			near = near.With(u.id)
		}
	}
	free := p.free(s, podUID).Minus(held)
	more, err := p.l.take(free, n-held.Len(), near, p.o)
	return held.Union(more), err
}
