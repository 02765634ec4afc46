package memmgr

import (
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// State is the assignment of memory to pods. It is an immutable value: methods do not change it,
// and it is safe for concurrent use. The zero State has no assignments.
//
// It stores only assignments. The free memory of a node is computed from them each time, so the
// two cannot disagree.
type State struct {
	pods []named // sorted; never modified once part of a State
}

type named struct {
	uid string
	*entry
}

// Block is a number of bytes on some nodes, for one container or one pod.
type Block struct {
	Nodes numa.NodeSet
	Amount
}

// entry is the assignment of a pod. It is immutable.
type entry struct {
	whole      []Block  // blocks of the pod as a whole; nil if its containers were assigned memory one by one
	containers []holder // in the order of the pod
	charges    []Block  // the amounts that the pod takes from the machine
}

// holder is a container with memory.
type holder struct {
	name   string
	index  int // within the pod
	kind   numa.Kind
	blocks []Block
}

// newEntry returns an entry with its charges.
func newEntry(whole []Block, containers []holder) *entry {
	e := &entry{whole: whole, containers: containers, charges: whole}
	if whole == nil {
		e.charges = charges(containers)
	}
	return e
}

// Pods returns the UIDs of all pods with an assignment, sorted.
func (s State) Pods() []string {
	uids := make([]string, len(s.pods))
	for i, p := range s.pods {
		uids[i] = p.uid
	}
	return uids
}

// Containers returns the names of a pod's containers that have an assignment, in the pod's order.
func (s State) Containers(pod string) []string {
	var names []string
	for _, h := range s.holders(pod) {
		names = append(names, h.name)
	}
	return names
}

// Nodes returns the nodes for a container's cpuset.mems. The set is empty for a container without
// an assignment; such a container may use any node.
func (s State) Nodes(pod, container string) numa.NodeSet {
	var nodes numa.NodeSet
	for _, b := range s.find(pod, container).blocks {
		nodes |= b.Nodes
	}
	return nodes
}

// Blocks returns the assignment of a container: a block for each resource that it requests,
// memory first. Containers that run one after the other may share bytes; [State.Shares] counts
// these once.
func (s State) Blocks(pod, container string) []Block {
	return slices.Clone(s.find(pod, container).blocks)
}

// Whole returns the blocks of a pod whose memory was assigned as a whole and is divided by its
// containers. It returns nil if memory was assigned to each container.
func (s State) Whole(pod string) []Block {
	if e := s.entry(pod); e != nil {
		return slices.Clone(e.whole)
	}
	return nil
}

// Charges returns the amounts that a pod takes from the machine while all its containers are
// kept, by nodes and resource.
func (s State) Charges(pod string) []Block {
	if e := s.entry(pod); e != nil {
		return slices.Clone(e.charges)
	}
	return nil
}

// Shares returns the blocks of a pod's containers with every byte counted once: an init container
// has only the bytes that no later container took over. The kubelet stores and reports blocks in
// this form.
func (s State) Shares(pod string) map[string][]Block {
	shares := map[string][]Block{}
	holders := s.holders(pod)
	for i, h := range holders {
		shares[h.name] = slices.Clone(h.blocks)
		for _, b := range h.blocks {
			left := b.Bytes
			for _, before := range holders[:i] {
				if before.kind != numa.Init {
					continue
				}
				for j, old := range shares[before.name] {
					if old.Nodes == b.Nodes && old.Resource == b.Resource {
						taken := min(left, old.Bytes)
						shares[before.name][j].Bytes -= taken
						left -= taken
					}
				}
			}
		}
	}
	return shares
}

// Without returns the state without a container's assignment. Memory of a pod as a whole is
// released with the last of its containers.
func (s State) Without(pod, container string) State {
	return s.keep(pod, func(h holder) bool { return h.name != container })
}

// WithoutPod returns the state without a pod's assignment.
func (s State) WithoutPod(pod string) State {
	return s.keep(pod, func(holder) bool { return false })
}

// Started returns the state after the start of a container. The init containers before it have
// ended, and lose their memory.
func (s State) Started(pod, container string) State {
	started := s.find(pod, container)
	if started.name == "" {
		return s
	}
	return s.keep(pod, func(h holder) bool { return h.kind != numa.Init || h.index >= started.index })
}

// keep removes the containers of a pod for which want returns false.
func (s State) keep(pod string, want func(holder) bool) State {
	old := s.entry(pod)
	if old == nil {
		return s
	}
	kept := slices.DeleteFunc(slices.Clone(old.containers), func(h holder) bool { return !want(h) })
	switch len(kept) {
	case len(old.containers):
		return s
	case 0:
		return s.with(pod, nil)
	}
	return s.with(pod, newEntry(old.whole, kept))
}

// give returns the state with the memory of a container that had none.
func (s State) give(pod string, h holder) State {
	old := s.entry(pod)
	if old == nil {
		old = &entry{}
	}
	return s.with(pod, newEntry(old.whole, insert(old.containers, h)))
}

// insert inserts h into holders, in the order of the pod.
func insert(holders []holder, h holder) []holder {
	at, _ := slices.BinarySearchFunc(holders, h, func(a, b holder) int { return a.index - b.index })
	return slices.Insert(slices.Clip(holders), at, h)
}

// with sets or, if e is nil, removes the entry of a pod.
func (s State) with(pod string, e *entry) State {
	at, found := s.search(pod)
	rest := s.pods[at:]
	if found {
		rest = rest[1:]
	}
	pods := append(make([]named, 0, len(s.pods)+1), s.pods[:at]...)
	if e != nil {
		pods = append(pods, named{pod, e})
	}
	return State{pods: append(pods, rest...)}
}

func (s State) search(pod string) (int, bool) {
	return slices.BinarySearchFunc(s.pods, pod, func(p named, uid string) int { return strings.Compare(p.uid, uid) })
}

// entry returns the assignment of a pod, or nil.
func (s State) entry(pod string) *entry {
	if at, ok := s.search(pod); ok {
		return s.pods[at].entry
	}
	return nil
}

func (s State) holders(pod string) []holder {
	if e := s.entry(pod); e != nil {
		return e.containers
	}
	return nil
}

func (s State) find(pod, container string) holder {
	for _, h := range s.holders(pod) {
		if h.name == container {
			return h
		}
	}
	return holder{}
}
