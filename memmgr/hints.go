package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Hints are the sets of nodes which have enough left of everything that is
// requested; those are preferred that are as small as they could be on the
// machine with nothing given. One list stands for memory and huge pages
// alike, since each container has all of them on the same nodes.
//
// What gets no memory of its own has no preference: pods that are not
// Guaranteed, and containers without a request. Who holds memory already has
// one hint, for where it is; if it does not hold what it requests now, it has
// no preference, and keeps what it has.
//
// The kubelet takes an unsatisfiable request for one without preference, and
// fails later with UnexpectedAdmissionError; here the list is empty. So the
// topology policies restricted and single-numa-node reject the pod with
// TopologyAffinityError, and with the others Allocate fails as in the kubelet.
// The list is also empty, in the kubelet too, for a pod with resources of its own
// whose containers leave nothing to those that share: Allocate has
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

// held reports whether who asks has an assignment, and the nodes of it if it is
// what is requested. Init containers that are over count as if they had one.
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

// over reports an init container that holds nothing any more: one that comes
// after it does.
func (p *Static) over(s State, pod numa.Pod, container int) bool {
	return pod.Containers[container].Kind == numa.Init &&
		s.find(pod.UID, pod.Containers[container].Name).name == "" &&
		slices.ContainsFunc(s.holders(pod.UID), func(h holder) bool { return h.index > container && h.kind == numa.Regular })
}

// matching are the nodes of blocks that are just what is asked for, or 0.
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

// question is one request before one state.
type question struct {
	policy   *Static
	accounts *accounts
	entry    *entry // what the pod has
	holder   holder // who asks
	ask      []Amount
	index    []int // of what is asked for, in Static.resources; -1 for what the machine does not have
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

// offers are all candidates that would do.
func (q question) offers() []numa.Hint {
	var hints []numa.Hint
	fewest := len(q.policy.machine.Nodes)
	for _, c := range q.policy.candidates {
		if !q.within(c.room) {
			continue
		}
		fewest = min(fewest, c.size) // the first one sets it: candidates ascend by size
		if q.fits(c.mems, c.room) {
			hints = append(hints, numa.Hint{Nodes: c.nodes, Preferred: c.size == fewest})
		}
	}
	return hints
}

// within reports whether nodes would have enough if nothing was given.
func (q question) within(room []uint64) bool {
	for i, a := range q.ask {
		if q.index[i] < 0 || a.Bytes > room[q.index[i]] {
			return false
		}
	}
	return true
}

// fits reports whether nodes may be given now: they keep to the groups, and have
// enough left beyond what the pod's own init containers leave to be used again.
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

// best is the hint to take when nothing else counts.
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
