package resources

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/devicemgr"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// CPUs returns the exclusive CPUs of containers, for the podresources API. It reads memory only.
func (p *Placement) CPUs() devicemgr.PodCPUs { return cpus{p} }

// Memory returns the memory of containers, for the podresources API. It reads memory only.
func (p *Placement) Memory() devicemgr.PodMemory { return memory{p} }

type cpus struct{ p *Placement }

// Exclusive implements devicemgr.AssignedCPUs.
func (c cpus) Exclusive(uid types.UID, container string) numa.CPUSet {
	node, _, _ := c.p.now()
	return node.State.CPU.Exclusive(string(uid), container)
}

// Allocatable implements devicemgr.AssignedCPUs.
func (c cpus) Allocatable() numa.CPUSet {
	node, _, _ := c.p.now()
	if s, ok := node.CPU.(*cpumgr.Static); ok {
		return s.Allocatable()
	}
	return numa.CPUSet{}
}

// OfPod implements devicemgr.PodCPUs.
func (c cpus) OfPod(uid types.UID) numa.CPUSet {
	node, _, _ := c.p.now()
	has, _ := node.State.CPU.Pod(string(uid))
	return has.Pool
}

type memory struct{ p *Placement }

// Blocks implements devicemgr.AssignedMemory.
func (m memory) Blocks(uid types.UID, container string) []devicemgr.MemoryBlock {
	node, _, _ := m.p.now()
	return blocks(node.State.Memory.Blocks(string(uid), container))
}

// Allocatable implements devicemgr.AssignedMemory.
func (m memory) Allocatable() []devicemgr.MemoryBlock {
	node, _, _ := m.p.now()
	if s, ok := node.Memory.(*memmgr.Static); ok {
		return blocks(s.Allocatable())
	}
	return nil
}

// BlocksOfPod implements devicemgr.PodMemory.
func (m memory) BlocksOfPod(uid types.UID) []devicemgr.MemoryBlock {
	node, _, _ := m.p.now()
	return blocks(node.State.Memory.Whole(string(uid)))
}

func blocks(list []memmgr.Block) []devicemgr.MemoryBlock {
	var out []devicemgr.MemoryBlock
	for _, b := range list {
		out = append(out, devicemgr.MemoryBlock{Type: string(b.Resource), Bytes: b.Bytes, Nodes: b.Nodes})
	}
	return out
}
