package cpumgr

import "github.com/nodewright/nodewright/numa"

// resource is the name of the resource in hints.
const resource = "cpu"

// anyHints returns hints without a preference, for a container without exclusive CPUs. It differs
// from an empty list, which means that the request cannot be served.
func anyHints() numa.Hints { return numa.Hints{Resource: resource, Any: true} }

// candidate is a set of nodes for a hint, with numbers that do not depend on the state and are
// computed once per machine.
type candidate struct {
	nodes   numa.NodeSet
	places  []int // indices of the nodes in the layout
	cpus    int   // number of all CPUs of the nodes, including reserved and assigned ones
	sockets int   // number of sockets that the nodes are in
}

// candidates returns the sets of nodes in which each node has CPUs, smallest first. A node with
// only memory would make a set look larger than it is.
func (l *layout) candidates() []candidate {
	place := map[int]int{}
	for i, n := range l.nodes {
		place[n.id] = i
	}
	var all []candidate
sets:
	for _, set := range numa.Candidates(l.m) {
		c := candidate{nodes: set}
		sockets := map[int]bool{}
		for id := range set.All() {
			i, ok := place[id]
			if !ok {
				continue sets
			}
			c.places = append(c.places, i)
			c.cpus += l.nodes[i].size
			for _, s := range l.nodeSockets[i] {
				sockets[s] = true
			}
		}
		c.sockets = len(sockets)
		all = append(all, c)
	}
	return all
}

// Hints returns the sets of nodes that can serve a container or, with [WholePod], a pod. As in
// the kubelet, a hint is preferred if it has as few nodes as an idle machine would need: on a
// busy machine there may be hints, but no preferred ones. The cost grows with the number of
// candidates.
func (p *Static) Hints(s State, pod numa.Pod, container int) numa.Hints {
	if container == WholePod {
		return p.podHints(s, pod)
	}
	if container < 0 || container >= len(pod.Containers) {
		return anyHints()
	}
	c := pod.Containers[container]
	n := p.wants(pod, c)
	if n == 0 {
		return anyHints()
	}
	// A repeated request, for example after a restart, gets the CPUs that were allocated before.
	if own, ok := s.pods[pod.UID].container(c.Name); ok {
		return p.again(own.CPUs, n)
	}
	return p.hints(p.free(s, pod.UID), s.Reusable(pod.UID), n)
}

// podHints returns the sets of nodes that can serve all containers of a pod together, or its
// pool.
func (p *Static) podHints(s State, pod numa.Pod) numa.Hints {
	if pod.Resources != nil {
		has, known := s.pods[pod.UID]
		switch n := p.wantsWhole(pod); {
		case n == 0:
			return anyHints()
		case !has.Pool.Empty():
			return p.again(has.Pool, n)
		case known: // its containers got CPUs one by one
			return p.again(has.held(), has.held().Len())
		case p.checkPodShares(pod, n) != nil: // as in the kubelet, no set of nodes would do
			return numa.Hints{Resource: resource}
		default:
			return p.hints(p.free(s, pod.UID), numa.CPUSet{}, n)
		}
	}
	n := p.total(pod)
	if n == 0 {
		return anyHints()
	}
	var assigned numa.CPUSet
	complete := true
	for _, c := range pod.Containers {
		own, ok := s.pods[pod.UID].container(c.Name)
		switch wants := p.wants(pod, c); {
		case ok && own.CPUs.Len() != wants:
			return numa.Hints{Resource: resource} // the container has a different number of CPUs than it requests
		case ok:
			assigned = assigned.Union(own.CPUs)
		case wants > 0:
			complete = false
		}
	}
	if complete {
		return p.hints(assigned, assigned, min(n, assigned.Len()))
	}
	// Every hint must include the nodes whose CPUs containers of the pod have already, since
	// containers do not move.
	must := s.Reusable(pod.UID).Union(assigned)
	return p.hints(p.free(s, pod.UID).Union(assigned), must, n)
}

// total returns the largest number of exclusive CPUs that containers of a pod use at the same
// time: the sidecars and regular containers together, or an init container and the sidecars that
// start before it.
func (p *Static) total(pod numa.Pod) int {
	staying, sidecars, most := 0, 0, 0
	for _, c := range pod.Containers {
		n := p.wants(pod, c)
		switch c.Kind {
		case numa.Init:
			most = max(most, sidecars+n)
		case numa.Sidecar:
			sidecars += n
			staying += n
		default:
			staying += n
		}
	}
	return max(most, staying)
}

// again returns the hints for a container or pod that already has the CPUs current. There are no
// hints if the requested number n differs from the number of these CPUs.
func (p *Static) again(current numa.CPUSet, n int) numa.Hints {
	if current.Len() != n {
		return numa.Hints{Resource: resource}
	}
	return p.hints(current, current, n)
}

// hints returns all sets of nodes that have n free CPUs and include the nodes of all required
// CPUs.
func (p *Static) hints(free, required numa.CPUSet, n int) numa.Hints {
	counts := make([]int, len(p.l.nodes))
	var requiredNodes numa.NodeSet
	for i, u := range p.l.nodes {
		counts[i] = free.IntersectLen(u.cpus)
		if required.IntersectLen(u.cpus) > 0 {
			requiredNodes = requiredNodes.With(u.id)
		}
	}
	fewest := p.fewestNodes(n)
	h := numa.Hints{Resource: resource}
	for _, c := range p.candidates {
		if !requiredNodes.SubsetOf(c.nodes) {
			continue
		}
		sum := 0
		for _, i := range c.places {
			sum += counts[i]
		}
		if sum >= n {
			preferred := len(c.places) == fewest || p.o.AlignBySocket && p.fillsSockets(c, fewest)
			h.List = append(h.List, numa.Hint{Nodes: c.nodes, Preferred: preferred})
		}
	}
	return h
}

// fewestNodes returns the number of nodes of the smallest candidate with at least n CPUs, free or
// not. If there is no such candidate, it returns the number of all nodes.
func (p *Static) fewestNodes(n int) int {
	for _, c := range p.candidates {
		if c.cpus >= n {
			return len(c.places)
		}
	}
	return len(p.l.nodes)
}

// fillsSockets reports whether a candidate is in the smallest number of sockets that can contain
// the given number of nodes.
func (p *Static) fillsSockets(c candidate, nodes int) bool {
	perSocket := len(p.l.nodes) / len(p.l.sockets)
	return c.sockets == (nodes+perSocket-1)/perSocket
}
