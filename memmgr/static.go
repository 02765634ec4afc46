package memmgr

import (
	"errors"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Config configures [Static].
type Config struct {
	// Machine is the machine whose memory is assigned. It is not modified.
	Machine numa.Machine
	// Reserved is the memory that is not assigned. At least one node must have some. See
	// [ValidateReserved] and [Spread].
	Reserved Reserved
	// PodLevel assigns memory to pods with pod-level resources: the pod gets memory as a whole,
	// and its containers share it (KEP-2837; in the kubelet the feature
	// PodLevelResourceManagers). Without it such pods get none, as in the kubelet by default.
	PodLevel bool
}

// Static assigns memory to every container of a Guaranteed pod, on as few nodes as possible. A
// node serves either containers that use only this node, or containers that all use the same set
// of several nodes.
//
// It is immutable and safe for concurrent use.
type Static struct {
	machine    numa.Machine
	reserved   Reserved
	podLevel   bool
	memory     numa.NodeSet // nodes that have memory
	resources  []Resource   // resources of the machine
	give       [][]uint64   // assignable amount, by index in machine.Nodes and in resources
	candidates []candidate
}

// candidate is a set of nodes for a hint.
type candidate struct {
	nodes numa.NodeSet
	size  int
	mems  numa.NodeSet // nodes of the candidate that have memory
	room  []uint64     // their assignable amount, by index in Static.resources
}

// NewStatic validates cfg and returns the policy. The error has all mistakes.
func NewStatic(cfg Config) (*Static, error) {
	if err := cfg.Machine.Validate(); err != nil {
		return nil, err
	}
	err := cfg.Reserved.check(cfg.Machine)
	if cfg.Reserved.sums()[Memory] == 0 {
		err = errors.Join(err, errors.New("reserved memory: memory is 0 bytes on all nodes; the Static policy needs some on at least one node"))
	}
	if err != nil {
		return nil, err
	}
	p := &Static{machine: cfg.Machine, podLevel: cfg.PodLevel, reserved: Reserved{}, resources: []Resource{Memory}}
	for id, of := range cfg.Reserved {
		p.reserved[id] = maps.Clone(of)
	}
	for _, n := range cfg.Machine.Nodes {
		if n.Memory > 0 || len(n.HugePages) > 0 {
			p.memory = p.memory.With(n.ID)
		}
		for size := range n.HugePages {
			if r := HugePages(size); !slices.Contains(p.resources, r) {
				p.resources = append(p.resources, r)
			}
		}
	}
	slices.SortFunc(p.resources, compareResources)
	for _, n := range cfg.Machine.Nodes {
		give := make([]uint64, len(p.resources))
		for i, r := range p.resources {
			give[i] = minus(capacity(n, r), p.reserved[n.ID][r])
		}
		p.give = append(p.give, give)
	}
	for _, nodes := range numa.Candidates(cfg.Machine) {
		mems := nodes & p.memory
		p.candidates = append(p.candidates, candidate{nodes: nodes, size: nodes.Len(), mems: mems, room: p.room(mems)})
	}
	return p, nil
}

// room returns the assignable amount of some nodes, by index in p.resources.
func (p *Static) room(nodes numa.NodeSet) []uint64 {
	room := make([]uint64, len(p.resources))
	for at, n := range p.machine.Nodes {
		if nodes.Has(n.ID) {
			for i, bytes := range p.give[at] {
				room[i] = plus(room[i], bytes)
			}
		}
	}
	return room
}

// Name returns the policy's name in a KubeletConfiguration.
func (p *Static) Name() string { return StaticName }

// Allocatable returns the assignable memory: a block for each node and resource
// with a positive amount.
func (p *Static) Allocatable() []Block {
	var blocks []Block
	for at, n := range p.machine.Nodes {
		for i, bytes := range p.give[at] {
			if bytes > 0 {
				blocks = append(blocks, Block{numa.Nodes(n.ID), Amount{p.resources[i], bytes}})
			}
		}
	}
	return blocks
}

// Release returns the state without a pod, like [State.Without].
func (p *Static) Release(s State, podUID, container string) State {
	return s.Without(podUID, container)
}
