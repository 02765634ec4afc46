package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Allocate assigns memory to a container from the hint's nodes. If they have too little left, or
// serve other containers as part of a larger set, Allocate uses the best larger set. If the hint
// is preferred, that set must be preferred too. An error is a [*PlacementError] or a
// [*EmptyPodSharedPoolError].
//
// There are two differences from the kubelet. Memory that the pod can reuse counts as free, so
// that a pod is not rejected because of memory that it holds itself. And a container cannot use a
// single node of a larger set.
func (p *Static) Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error) {
	if container >= 0 {
		return p.allocateContainer(s, pod, container, hint)
	}
	if pod.Resources != nil {
		return p.allocatePod(s, pod, hint)
	}
	next := s
	for i := range pod.Containers {
		var err error
		if next, err = p.allocateContainer(next, pod, i, hint); err != nil {
			return s, err
		}
	}
	return next, nil
}

func (p *Static) allocateContainer(s State, pod numa.Pod, container int, hint numa.Hint) (State, error) {
	ask := p.request(pod, container)
	if len(ask) == 0 {
		return s, nil
	}
	if _, held := p.held(s, pod, container, ask); held {
		return s, nil
	}
	q := p.question(s, pod, container, ask)
	nodes, err := q.place(hint)
	if err != nil {
		return s, p.explain(s, pod.UID, q, hint, err)
	}
	h := q.holder
	h.blocks = blocksOn(nodes, ask)
	return s.give(pod.UID, h), nil
}

// place chooses the nodes for a request.
func (q question) place(hint numa.Hint) (numa.NodeSet, error) {
	mems := hint.Nodes & q.policy.memory
	if hint.Nodes != 0 && hint.Nodes.SubsetOf(q.policy.machine.AllNodes()) && q.fits(mems, q.policy.room(mems)) {
		return mems, nil
	}
	wider := slices.DeleteFunc(q.offers(), func(h numa.Hint) bool { return !hint.Nodes.SubsetOf(h.Nodes) })
	switch to, ok := best(wider); {
	case ok && hint.Preferred && !to.Preferred:
		return 0, ErrNotPreferred
	case ok:
		return to.Nodes & q.policy.memory, nil
	case hint.Nodes != 0 && mems&q.accounts.taken != 0 && !q.accounts.open(mems):
		return 0, ErrGroups
	}
	return 0, ErrNoRoom
}

func (p *Static) explain(s State, uid string, q question, hint numa.Hint, cause error) error {
	return &PlacementError{Pod: uid, Container: q.holder.name, Asked: q.ask, Hint: hint, Nodes: p.Stats(s), cause: cause}
}
