package memmgr

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Give returns the state in which a container has the given blocks instead of its previous ones.
// If container is -1, the pod as a whole has the blocks, and its containers divide them. Policies
// outside this package use Give. It does not check that the machine has that much memory.
//
// Give returns an error if there are no blocks, if a block has no nodes or no bytes, or if two
// blocks are of one resource. It also returns an error if container is not -1 and the pod already
// has blocks as a whole.
func (s State) Give(pod numa.Pod, container int, blocks ...Block) (State, error) {
	blocks = slices.Clone(blocks)
	slices.SortFunc(blocks, func(a, b Block) int { return compareResources(a.Resource, b.Resource) })
	if err := checkBlocks(blocks); err != nil {
		return s, err
	}
	if container < 0 {
		holders := partition(pod, blocks)
		if len(holders) == 0 {
			return s, errors.New("no container of the pod gets a part of the blocks")
		}
		return s.with(pod.UID, newEntry(blocks, holders)), nil
	}
	if old := s.entry(pod.UID); old != nil && old.whole != nil {
		return s, errors.New("the pod has blocks as a whole; its containers cannot get others")
	}
	c := pod.Containers[container]
	return s.Without(pod.UID, c.Name).give(pod.UID, holder{c.Name, container, c.Kind, blocks}), nil
}

// checkBlocks returns an error for blocks that no container can have.
func checkBlocks(blocks []Block) error {
	if len(blocks) == 0 {
		return errors.New("blocks is empty; want one at least")
	}
	for i, b := range blocks {
		switch {
		case b.Nodes == 0:
			return fmt.Errorf("blocks[%d].nodes is empty; want one at least", i)
		case !b.Resource.known():
			return fmt.Errorf("blocks[%d].resource is %q; want %s or %s<size>", i, b.Resource, Memory, hugePrefix)
		case b.Bytes == 0:
			return fmt.Errorf("blocks[%d].bytes is 0; want a positive number", i)
		case i > 0 && compareResources(blocks[i-1].Resource, b.Resource) >= 0:
			return fmt.Errorf("blocks[%d].resource is %s after %s; want memory, and huge pages by ascending size", i, b.Resource, blocks[i-1].Resource)
		}
	}
	return nil
}
