package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Hints returns the sets of nodes that have enough left of every requested resource. A set is
// preferred if no smaller set would be enough on an idle machine. Memory and huge pages have one
// list together, since a container has all of them on the same nodes.
//
// Pods that are not Guaranteed, and containers without a request, get no memory assigned and have
// no preference. A container that has memory has one hint, with its nodes. If its request has
// changed, it has no preference and keeps its memory.
//
// If the request cannot be served, the list is empty: the topology policies restricted and
// single-numa-node reject the pod with TopologyAffinityError, and with the others Allocate fails.
// The kubelet returns no preference instead, so that every policy fails later with
// UnexpectedAdmissionError. As in the kubelet, the list is also empty for a pod with pod-level
// resources whose containers leave nothing to those that share: Allocate returns
// [EmptyPodSharedPoolError].
func (p *Static) Hints(s State, pod numa.Pod, container int) numa.Hints {
	hints := numa.Hints{Resource: string(Memory)}
	ask := p.request(pod, container)
	switch nodes, held := p.held(s, pod, container, ask); {
	case len(ask) == 0, held && nodes == 0:
		hints.Any = true
	case held:
		hints.List = []numa.Hint{{Nodes: nodes, Preferred: true}}
	case container < 0 && pod.Resources != nil && sharedPool(pod, ask) != nil:
	default:
		hints.List = p.question(s, pod, container, ask).offers()
	}
	return hints
}

// held reports whether a container or pod has an assignment. It returns the nodes if the
// assignment equals the request. Init containers that have ended count as assigned.
func (p *Static) held(s State, pod numa.Pod, container int, ask []Amount) (numa.NodeSet, bool) {
	e := s.entry(pod.UID)
	if e == nil {
		return 0, false
	}
	if container >= 0 {
		if p.over(s, pod, container) || e.whole != nil {
			return s.Nodes(pod.UID, pod.Containers[container].Name), true
		}
		blocks := s.find(pod.UID, pod.Containers[container].Name).blocks
		return matching(blocks, ask), len(blocks) > 0
	}
	if e.whole != nil {
		return matching(e.whole, ask), true
	}
	var nodes numa.NodeSet
	for i, c := range pod.Containers {
		own := p.request(pod, i)
		if len(own) == 0 || p.over(s, pod, i) {
			continue
		}
		on := matching(s.find(pod.UID, c.Name).blocks, own)
		if on == 0 || nodes != 0 && on != nodes {
			return 0, true
		}
		nodes = on
	}
	return nodes, true
}

// over reports whether an init container has ended and left its memory to others. This is so if a
// later container has memory.
func (p *Static) over(s State, pod numa.Pod, container int) bool {
	return pod.Containers[container].Kind == numa.Init &&
		s.find(pod.UID, pod.Containers[container].Name).name == "" &&
		slices.ContainsFunc(s.holders(pod.UID), func(h holder) bool { return h.index > container && h.kind == numa.Regular })
}

// matching returns the nodes of the blocks if the amounts of the blocks are exactly the requested
// ones. Otherwise it returns 0.
func matching(blocks []Block, ask []Amount) numa.NodeSet {
	if len(blocks) != len(ask) {
		return 0
	}
	var nodes numa.NodeSet
	for _, b := range blocks {
		if !slices.Contains(ask, b.Amount) {
			return 0
		}
		nodes |= b.Nodes
	}
	return nodes
}

// question is one request for memory, with the state to answer it from.
type question struct {
	policy   *Static
	accounts *accounts
	entry    *entry // the pod's assignment
	holder   holder // the container that requests
	ask      []Amount
	index    []int // indices of ask in Static.resources; -1 if the machine lacks the resource
}

func (p *Static) question(s State, pod numa.Pod, container int, ask []Amount) question {
	q := question{policy: p, accounts: p.accounts(s), ask: ask}
	if container >= 0 {
		q.entry = s.entry(pod.UID)
		q.holder = holder{name: pod.Containers[container].Name, index: container, kind: pod.Containers[container].Kind}
	}
	for _, a := range ask {
		q.index = append(q.index, slices.Index(p.resources, a.Resource))
	}
	return q
}

// offers returns a hint for each candidate that can serve the request.
func (q question) offers() []numa.Hint {
	var hints []numa.Hint
	fewest := len(q.policy.machine.Nodes)
	for _, c := range q.policy.candidates {
		if !q.within(c.room) {
			continue
		}
		fewest = min(fewest, c.size) // candidates ascend by size, so the first one sets it
		if q.fits(c.mems, c.room) {
			hints = append(hints, numa.Hint{Nodes: c.nodes, Preferred: c.size == fewest})
		}
	}
	return hints
}

// within reports whether nodes with these amounts would be enough on an idle machine.
func (q question) within(room []uint64) bool {
	for i, a := range q.ask {
		if q.index[i] < 0 || a.Bytes > room[q.index[i]] {
			return false
		}
	}
	return true
}

// fits reports whether the nodes can be used now: they respect the groups, and have enough left.
// Memory of the pod's own init containers counts as free.
func (q question) fits(mems numa.NodeSet, room []uint64) bool {
	if !q.accounts.open(mems) {
		return false
	}
	for i, more := range q.entry.extra(mems, q.holder, q.ask) {
		at := q.index[i]
		if at < 0 || more.Bytes > minus(room[at], q.accounts.used(mems, at)) {
			return false
		}
	}
	return true
}

// best returns the best hint: preferred before others, then with fewer nodes, then with lower
// numbers.
func best(hints []numa.Hint) (numa.Hint, bool) {
	if len(hints) == 0 {
		return numa.Hint{}, false
	}
	return slices.MinFunc(hints, func(a, b numa.Hint) int {
		switch {
		case a.Preferred != b.Preferred && a.Preferred, a.Preferred == b.Preferred && a.Nodes.Narrower(b.Nodes):
			return -1
		case a == b:
			return 0
		}
		return 1
	}), true
}
