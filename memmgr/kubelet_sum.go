package memmgr

import "github.com/nodewright/nodewright/internal/kubeletsum"

// sum returns the kubelet's checksum of a file in the first format or, with pods, in the second:
// FNV-1a over a dump of the content, with a checksum of 0. The dump is the one that the kubelet's
// checkpoint library makes of its own type. It contains the names of types, and distinguishes
// empty maps and lists from null ones.
func (s kubeletState) sum(pods bool) uint64 {
	d := &dump{}
	d.Add("(*state.MemoryManagerCheckpoint){PolicyName:(string)%s MachineState:(state.NUMANodeMap)", s.PolicyName)
	kubeletsum.Map(&d.Dump, s.MachineState, d.node)
	d.Add(" Entries:(state.ContainerMemoryAssignments)")
	kubeletsum.Map(&d.Dump, s.Entries, func(containers map[string][]kubeletBlock) { kubeletsum.Map(&d.Dump, containers, d.blocks) })
	if pods {
		d.Add(" PodEntries:(state.PodMemoryAssignments)")
		kubeletsum.Map(&d.Dump, s.PodEntries, func(pod kubeletPod) {
			d.Add("{MemoryBlocks:([]state.Block)")
			d.blocks(pod.Blocks)
			d.Add("}")
		})
	}
	d.Add(" Checksum:(checksum.Checksum)0}")
	return d.Sum()
}

// dump is the text that the checksum covers.
type dump struct{ kubeletsum.Dump }

func (d *dump) node(n *kubeletNode) {
	if n == nil {
		d.Null()
		return
	}
	d.Add("<*>{NumberOfAssignments:(int)%d MemoryMap:(map[v1.ResourceName]*state.MemoryTable)", n.Assignments)
	kubeletsum.Map(&d.Dump, n.Memory, d.memory)
	d.Add(" Cells:([]int)")
	d.ids(n.Group)
	d.Add("}")
}

func (d *dump) memory(m *kubeletMemory) {
	if m == nil {
		d.Null()
		return
	}
	d.Add("<*>{TotalMemSize:(uint64)%d SystemReserved:(uint64)%d Allocatable:(uint64)%d Reserved:(uint64)%d Free:(uint64)%d}",
		m.Total, m.Reserved, m.Allocatable, m.Used, m.Free)
}

func (d *dump) blocks(list []kubeletBlock) {
	kubeletsum.List(&d.Dump, list, func(k kubeletBlock) {
		d.Add("{NUMAAffinity:([]int)")
		d.ids(k.Nodes)
		d.Add(" Type:(v1.ResourceName)%s Size:(uint64)%d}", k.Resource, k.Bytes)
	})
}

func (d *dump) ids(list []int) {
	kubeletsum.List(&d.Dump, list, func(id int) { d.Add("%d", id) })
}
