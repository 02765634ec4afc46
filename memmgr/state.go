package memmgr

import (
	"slices"
	"strings"

	"github.com/nodewright/nodewright/numa"
)

// State describes who was given what. It is an immutable value: all methods leave
// it as it is, and any number of goroutines may use it at once. The zero State
// is that of a machine on which nothing was given.
//
// It holds assignments and nothing else. What a node has left is worked out
// from them each time, so there are no accounts that could drift.
type State struct {
	pods []named // sorted; never written to once it is part of a State
}

type named struct {
	uid string
	*entry
}

// Block is some bytes on some nodes, for one container or one pod.
type Block struct {
	Nodes numa.NodeSet
	Amount
}

// entry is what a pod was given. It is never changed once it is made.
type entry struct {
	whole      []Block  // of the pod as a whole, if it was given as such
	containers []holder // in the order of the pod
	charges    []Block  // what all this takes from the machine
}

// holder is a container that was given something.
type holder struct {
	name   string
	index  int // within the pod
	kind   numa.Kind
	blocks []Block
}

// newEntry works out the charges.
func newEntry(whole []Block, containers []holder) *entry {
	e := &entry{whole: whole, containers: containers, charges: whole}
	if whole == nil {
		e.charges = charges(containers)
	}
	return e
}

// Pods are the UIDs of all that were given something, sorted.
func (s State) Pods() []string {
	uids := make([]string, len(s.pods))
	for i, p := range s.pods {
		uids[i] = p.uid
	}
	return uids
}

// Containers names those of a pod that hold something, in the pod's order.
func (s State) Containers(pod string) []string {
	var names []string
	for _, h := range s.holders(pod) {
		names = append(names, h.name)
	}
	return names
}

// Nodes are those that a container's memory comes from: what belongs into its
// cpuset.mems. It is 0, that is any node, for a container that was given none.
func (s State) Nodes(pod, container string) numa.NodeSet {
	var nodes numa.NodeSet
	for _, b := range s.find(pod, container).blocks {
		nodes |= b.Nodes
	}
	return nodes
}

// Blocks are what a container was given: a block for each resource that it
// requests, memory first. Containers that run one after the other may have been
// given the same bytes; [State.Shares] counts them once.
func (s State) Blocks(pod, container string) []Block {
	return slices.Clone(s.find(pod, container).blocks)
}

// Whole are the blocks of a pod that was given its memory as a whole, which its containers
// divide among themselves; none of one whose containers were given theirs one by one.
func (s State) Whole(pod string) []Block {
	if e := s.entry(pod); e != nil {
		return slices.Clone(e.whole)
	}
	return nil
}

// Charges are what a pod takes from the machine as long as all its containers
// are kept, by nodes and resource.
func (s State) Charges(pod string) []Block {
	if e := s.entry(pod); e != nil {
		return slices.Clone(e.charges)
	}
	return nil
}

// Shares are the blocks of a pod's containers with every byte counted once: an
// init container has only what no later container took over. They are what the
// kubelet stores and reports as the containers' blocks.
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

// Without is the state after a container gave back all it held. What was given
// to a pod as a whole goes back with the last of its containers.
func (s State) Without(pod, container string) State {
	return s.keep(pod, func(h holder) bool { return h.name != container })
}

// WithoutPod is the state after a pod gave back all it held.
func (s State) WithoutPod(pod string) State {
	return s.keep(pod, func(holder) bool { return false })
}

// Started is the state after a container was started: the init containers
// before it are over, and keep nothing.
func (s State) Started(pod, container string) State {
	started := s.find(pod, container)
	if started.name == "" {
		return s
	}
	return s.keep(pod, func(h holder) bool { return h.kind != numa.Init || h.index >= started.index })
}

// keep drops those containers of a pod that want does not.
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

// give adds a container that held nothing.
func (s State) give(pod string, h holder) State {
	old := s.entry(pod)
	if old == nil {
		old = &entry{}
	}
	return s.with(pod, newEntry(old.whole, insert(old.containers, h)))
}

// insert puts h among others in the order of the pod.
func insert(holders []holder, h holder) []holder {
	at, _ := slices.BinarySearchFunc(holders, h, func(a, b holder) int { return a.index - b.index })
	return slices.Insert(slices.Clip(holders), at, h)
}

// with sets the entry of a pod, or removes it.
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

// entry is what a pod was given, or nil.
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
