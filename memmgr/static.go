package memmgr

import (
	"errors"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Config is what [Static] needs.
type Config struct {
	// Machine is what there is to give. It is not changed later.
	Machine numa.Machine
	// Reserved is what is not given; it has memory on at least one node. See
	// [ValidateReserved] and [Spread].
	Reserved Reserved
	// PodLevel lets pods with resources of their own take part: the pod gets
	// memory as a whole, and its containers share it (KEP-2837; in the kubelet
	// the feature PodLevelResourceManagers). Without it they get none, which is
	// the kubelet's default.
	PodLevel bool
}

// Static gives every container of a Guaranteed pod memory on as few nodes as
// can be. A node serves either containers that stay on it alone, or containers
// that all have the same several nodes.
//
// It is read-only once it is made, and may be shared.
type Static struct {
	machine    numa.Machine
	reserved   Reserved
	podLevel   bool
	memory     numa.NodeSet // nodes that have any
	resources  []Resource   // of the machine
	give       [][]uint64   // what each of machine.Nodes has to give, for each of resources
	candidates []candidate
}

// candidate is a set of nodes that may become a hint.
type candidate struct {
	nodes numa.NodeSet
	size  int
	mems  numa.NodeSet // those that have memory
	room  []uint64     // what they have to give, for each of Static.resources
}

// NewStatic makes the policy. It reports all mistakes of cfg at once.
func NewStatic(cfg Config) (*Static, error) {
	if err := cfg.Machine.Validate(); err != nil {
		return nil, err
	}
	err := cfg.Reserved.check(cfg.Machine)
	if cfg.Reserved.sums()[Memory] == 0 {
		err = errors.Join(err, errors.New("reserved memory: memory is 0 bytes over all nodes; the Static policy wants some on at least one"))
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

// room is what some nodes have to give, for each of p.resources.
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

// Name is that of a KubeletConfiguration.
func (p *Static) Name() string { return StaticName }

// Allocatable is all there is to give: a block for each node and resource of
// which there is something.
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

// Release is [State.Without].
func (p *Static) Release(s State, podUID, container string) State {
	return s.Without(podUID, container)
}
