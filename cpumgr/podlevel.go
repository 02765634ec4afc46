package cpumgr

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// allocatePod gives all containers of a pod their CPUs, or none. If one container cannot be
// served, the state is unchanged.
func (p *Static) allocatePod(s State, pod numa.Pod, hint numa.Hint) (State, error) {
	if pod.Resources == nil {
		next := s
		for i := range pod.Containers {
			var err error
			if next, err = p.Allocate(next, pod, i, hint); err != nil {
				return s, err
			}
		}
		return next, nil
	}
	n := p.wantsWhole(pod)
	// A pod that has CPUs keeps them, whichever way it got them.
	if _, has := s.pods[pod.UID]; has || n == 0 {
		return s, nil
	}
	// Before anything is chosen: the error says more than one of too few CPUs.
	if err := p.checkPodShares(pod, n); err != nil {
		return s, err
	}
	pool, err := p.take(s, pod.UID, n, hint)
	if err != nil {
		return s, fmt.Errorf("pod: %w", err)
	}
	containers, err := p.partition(pod, pool)
	if err != nil {
		return s, err
	}
	return s.WithPod(PodCPUs{UID: pod.UID, Pool: pool, Containers: containers}), nil
}

// checkPodShares returns an error if a container that shares its pod's CPUs would
// have none, because other containers have all of them exclusively. Init containers
// that share run beside the sidecars started before them; regular ones run beside
// all sidecars and regular containers.
func (p *Static) checkPodShares(pod numa.Pod, total int) error {
	sidecars, staying := 0, 0
	var sharing []string
	for _, c := range pod.Containers {
		n := p.wants(pod, c)
		if c.Kind == numa.Sidecar {
			sidecars += n
		}
		switch {
		case c.Kind == numa.Init && n == 0 && sidecars >= total:
			return &EmptyPodSharedPoolError{Container: c.Name, Total: total, Exclusive: sidecars}
		case c.Kind == numa.Init:
		case n == 0:
			sharing = append(sharing, c.Name)
		default:
			staying += n
		}
	}
	if len(sharing) > 0 && staying >= total {
		return &EmptyPodSharedPoolError{Container: sharing[0], Total: total, Exclusive: staying}
	}
	return nil
}

// partition divides a pod's pool among its containers, in the order of their
// starts. Sidecars and regular containers get exclusive CPUs; init containers use
// the CPUs that sidecars before them leave; containers that share get the rest.
func (p *Static) partition(pod numa.Pod, pool numa.CPUSet) ([]ContainerCPUs, error) {
	left := pool // without the CPUs of sidecars and regular containers
	all := make([]ContainerCPUs, 0, len(pod.Containers))
	for _, c := range pod.Containers {
		own := ContainerCPUs{Name: c.Name, Kind: c.Kind}
		n := p.wants(pod, c)
		var err error
		switch {
		case n == 0:
			own.CPUs, own.Pooled = left, true // of sidecars and regular containers, see below
		case n > left.Len():
			err = p.l.insufficient(left, n)
		default:
			// Only the pod is guaranteed whole cores: its containers may share one.
			o := p.o
			o.FullPCPUsOnly = false
			own.CPUs, err = p.l.take(left, n, 0, o)
		}
		if err != nil {
			return nil, fmt.Errorf("container %q, of the pod's %d CPUs: %w", c.Name, pool.Len(), err)
		}
		// An init container has ended before the next container starts, and leaves
		// its CPUs to that.
		if n > 0 && c.Kind != numa.Init {
			left = left.Minus(own.CPUs)
		}
		all = append(all, own)
	}
	// Only now the rest is known that sidecars and regular containers leave.
	for i := range all {
		if all[i].Pooled && all[i].Kind != numa.Init {
			all[i].CPUs = left
		}
	}
	return all, nil
}
