package memmgr

import "github.com/nodewright/nodewright/numa"

// allocatePod assigns all pod-level resources of a pod at once, on the same nodes, and divides
// them among its containers.
func (p *Static) allocatePod(s State, pod numa.Pod, hint numa.Hint) (State, error) {
	ask := p.request(pod, -1)
	if len(ask) == 0 {
		return s, nil
	}
	if _, held := p.held(s, pod, -1, ask); held {
		return s, nil
	}
	if err := sharedPool(pod, ask); err != nil {
		return s, err
	}
	q := p.question(s, pod, -1, ask)
	nodes, err := q.place(hint)
	if err != nil {
		return s, p.explain(s, pod.UID, q, hint, err)
	}
	return s.with(pod.UID, wholePod(pod, ask, nodes)), nil
}

// wholePod returns the entry of a pod that has its resources as a whole.
func wholePod(pod numa.Pod, ask []Amount, nodes numa.NodeSet) *entry {
	whole := blocksOn(nodes, ask)
	return newEntry(whole, partition(pod, whole))
}

// partition divides the pod-level resources among the containers. A container whose requests of
// CPU and memory equal its limits gets exactly its request. An init container without such
// requests gets what the sidecars before it leave. All other containers share what all sidecars
// and regular containers leave.
func partition(pod numa.Pod, whole []Block) []holder {
	var holders []holder
	lasting := exclusive(pod, len(pod.Containers))
	for i, c := range pod.Containers {
		h := holder{name: c.Name, index: i, kind: c.Kind}
		taken := lasting
		if c.Kind == numa.Init {
			taken = exclusive(pod, i)
		}
		for _, b := range whole {
			b.Bytes = minus(b.Bytes, taken[b.Resource])
			if c.Bound {
				b.Bytes = of(containerRequest(pod, i), b.Resource)
			}
			if b.Bytes > 0 {
				h.blocks = append(h.blocks, b)
			}
		}
		if len(h.blocks) > 0 {
			holders = append(holders, h)
		}
	}
	return holders
}

// exclusive returns the amounts that the first n containers hold exclusively until
// the pod ends.
func exclusive(pod numa.Pod, n int) map[Resource]uint64 {
	sum := map[Resource]uint64{}
	for i, c := range pod.Containers[:n] {
		if c.Bound && c.Kind != numa.Init {
			for _, a := range containerRequest(pod, i) {
				sum[a.Resource] = plus(sum[a.Resource], a.Bytes)
			}
		}
	}
	return sum
}

// sharedPool returns an error if nothing is left for a container that shares.
func sharedPool(pod numa.Pod, total []Amount) error {
	lasting := exclusive(pod, len(pod.Containers))
	for i, c := range pod.Containers {
		taken := lasting
		if c.Kind == numa.Init {
			taken = exclusive(pod, i)
		}
		for _, a := range total {
			if !c.Bound && taken[a.Resource] >= a.Bytes {
				return &EmptyPodSharedPoolError{Pod: pod.UID, Container: c.Name, Resource: a.Resource, Total: a.Bytes, Exclusive: taken[a.Resource]}
			}
		}
	}
	return nil
}

func of(list []Amount, r Resource) uint64 {
	for _, a := range list {
		if a.Resource == r {
			return a.Bytes
		}
	}
	return 0
}
