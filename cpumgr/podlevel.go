package cpumgr

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// allocatePod assigns CPUs to all containers of a pod, or to none: if one container cannot be
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
	// A pod that has CPUs keeps them, however it got them.
	if _, has := s.pods[pod.UID]; has || n == 0 {
		return s, nil
	}
	// Checked first, since its error says more than one about too few CPUs.
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

// checkPodShares returns an error if a container that shares its pod's CPUs would have none,
// because other containers use all of them exclusively. total is the number of the pod's CPUs. An
// init container shares with the sidecars before it. A sidecar or regular container shares with
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

// partition divides a pod's pool among its containers, in the order of their start. Sidecars and
// regular containers get exclusive CPUs. Init containers use the CPUs that sidecars before them
// leave. Containers that request no exclusive CPUs share the rest.
func (p *Static) partition(pod numa.Pod, pool numa.CPUSet) ([]ContainerCPUs, error) {
	left := pool // the pool without the CPUs of sidecars and regular containers
	all := make([]ContainerCPUs, 0, len(pod.Containers))
	for _, c := range pod.Containers {
		own := ContainerCPUs{Name: c.Name, Kind: c.Kind}
		n := p.wants(pod, c)
		var err error
		switch {
		case n == 0:
			own.CPUs, own.Pooled = left, true // sidecars and regular containers that share; see below
		case n > left.Len():
			err = p.l.insufficient(left, n)
		default:
			// Whole cores are guaranteed to the pod, so its containers may share a core.
			o := p.o
			o.FullPCPUsOnly = false
			own.CPUs, err = p.l.take(left, n, 0, o)
		}
		if err != nil {
			return nil, fmt.Errorf("allocate CPUs of container %q from the pod's %d CPUs: %w", c.Name, pool.Len(), err)
		}
		// An init container ends before the next container starts, so its CPUs remain available.
		if n > 0 && c.Kind != numa.Init {
			left = left.Minus(own.CPUs)
		}
		all = append(all, own)
	}
	// Only now it is known what sidecars and regular containers leave.
	for i := range all {
		if all[i].Pooled && all[i].Kind != numa.Init {
			all[i].CPUs = left
		}
	}
	return all, nil
}
