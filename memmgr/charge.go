package memmgr

import (
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// charges returns the amounts that the containers of a pod take from the machine, by nodes and
// resource: the largest amount that they use at the same time. Init containers run one after the
// other and end before the regular ones start, so their memory is reused. The amounts are
// computed for each init container together with the sidecars before it, and for all sidecars and
// regular containers together.
//
// Only containers on the same nodes reuse each other's memory.
func charges(holders []holder) []Block {
	var peaks, lasting []Block // same indices
	for _, h := range holders {
		for _, b := range h.blocks {
			i := slices.IndexFunc(peaks, func(p Block) bool { return p.Nodes == b.Nodes && p.Resource == b.Resource })
			if i < 0 {
				i = len(peaks)
				peaks = append(peaks, Block{b.Nodes, Amount{b.Resource, 0}})
				lasting = append(lasting, peaks[i])
			}
			held := plus(lasting[i].Bytes, b.Bytes)
			peaks[i].Bytes = max(peaks[i].Bytes, held)
			if h.kind != numa.Init {
				lasting[i].Bytes = held
			}
		}
	}
	return peaks
}

// extra returns how much one more container takes from the machine, in addition to the pod's
// charges.
func (e *entry) extra(nodes numa.NodeSet, h holder, ask []Amount) []Amount {
	if e == nil || !slices.ContainsFunc(e.charges, func(b Block) bool { return b.Nodes == nodes }) {
		return ask
	}
	h.blocks = blocksOn(nodes, ask)
	more := slices.Clone(ask)
	for _, b := range charges(insert(e.containers, h)) {
		i := slices.IndexFunc(more, func(a Amount) bool { return a.Resource == b.Resource })
		if b.Nodes == nodes && i >= 0 {
			more[i].Bytes = minus(b.Bytes, e.charge(nodes, b.Resource))
		}
	}
	return more
}

func (e *entry) charge(nodes numa.NodeSet, r Resource) uint64 {
	for _, b := range e.charges {
		if b.Nodes == nodes && b.Resource == r {
			return b.Bytes
		}
	}
	return 0
}

func blocksOn(nodes numa.NodeSet, ask []Amount) []Block {
	blocks := make([]Block, len(ask))
	for i, a := range ask {
		blocks[i] = Block{nodes, a}
	}
	return blocks
}
