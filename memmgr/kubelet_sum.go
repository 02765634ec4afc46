package memmgr

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
)

// kubeletTextSum is the kubelet's checksum of a text: FNV-1a over the dump that its
// checkpoint library makes of it.
func kubeletTextSum(text string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("(string)" + text))
	return uint64(h.Sum32())
}

// sum is the kubelet's checksum of a file in the first format, or with pods in the
// second: FNV-1a over a dump of what it says, with the checksum itself as 0. The dump
// is the one that the kubelet's checkpoint library makes of its own type, under the
// name that the type had at first; names of types are part of it, and so is whether
// a map or a list is empty or null.
func (s kubeletState) sum(pods bool) uint64 {
	b := &dump{}
	fmt.Fprintf(b, "(*state.MemoryManagerCheckpoint){PolicyName:(string)%s MachineState:(state.NUMANodeMap)", s.PolicyName)
	dumpMap(b, s.MachineState, b.node)
	b.WriteString(" Entries:(state.ContainerMemoryAssignments)")
	dumpMap(b, s.Entries, func(containers map[string][]kubeletBlock) { dumpMap(b, containers, b.blocks) })
	if pods {
		b.WriteString(" PodEntries:(state.PodMemoryAssignments)")
		dumpMap(b, s.PodEntries, func(pod kubeletPod) {
			b.WriteString("{MemoryBlocks:([]state.Block)")
			b.blocks(pod.Blocks)
			b.WriteByte('}')
		})
	}
	b.WriteString(" Checksum:(checksum.Checksum)0}")
	h := fnv.New32a()
	_, _ = h.Write(b.Bytes())
	return uint64(h.Sum32())
}

// dump is the text that is summed up.
type dump struct{ bytes.Buffer }

func (b *dump) node(n *kubeletNode) {
	if n == nil {
		b.WriteString("<nil>")
		return
	}
	fmt.Fprintf(b, "<*>{NumberOfAssignments:(int)%d MemoryMap:(map[v1.ResourceName]*state.MemoryTable)", n.Assignments)
	dumpMap(b, n.Memory, b.memory)
	b.WriteString(" Cells:([]int)")
	b.ids(n.Group)
	b.WriteByte('}')
}

func (b *dump) memory(m *kubeletMemory) {
	if m == nil {
		b.WriteString("<nil>")
		return
	}
	fmt.Fprintf(b, "<*>{TotalMemSize:(uint64)%d SystemReserved:(uint64)%d Allocatable:(uint64)%d Reserved:(uint64)%d Free:(uint64)%d}",
		m.Total, m.Reserved, m.Allocatable, m.Used, m.Free)
}

func (b *dump) blocks(list []kubeletBlock) {
	dumpList(b, list, func(k kubeletBlock) {
		b.WriteString("{NUMAAffinity:([]int)")
		b.ids(k.Nodes)
		fmt.Fprintf(b, " Type:(v1.ResourceName)%s Size:(uint64)%d}", k.Resource, k.Bytes)
	})
}

func (b *dump) ids(list []int) {
	dumpList(b, list, func(id int) { fmt.Fprintf(b, "%d", id) })
}

// dumpMap has the keys in ascending order.
func dumpMap[K cmp.Ordered, V any](b *dump, m map[K]V, value func(V)) {
	if m == nil {
		b.WriteString("<nil>")
		return
	}
	b.WriteString("map[")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(b, "%v:", key)
		value(m[key])
	}
	b.WriteByte(']')
}

func dumpList[T any](b *dump, list []T, value func(T)) {
	if list == nil {
		b.WriteString("<nil>")
		return
	}
	b.WriteByte('[')
	for i, item := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		value(item)
	}
	b.WriteByte(']')
}
