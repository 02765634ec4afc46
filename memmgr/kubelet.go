package memmgr

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/internal/kubeletsum"
	"github.com/nodewright/nodewright/numa"
)

// MaxKubeletFile is the largest memory_manager_state, in bytes, that [DecodeKubelet] reads: three
// times the file for 250 pods with 20 containers with memory and huge pages. The third format
// contains everything twice.
const MaxKubeletFile = 4 << 20

// Assignments are the memory assignments of a kubelet, read from its
// memory_manager_state. With [Static.Rebuild] an agent can take over a node from a
// kubelet.
type Assignments struct {
	Policy string
	// Pods has the blocks of containers by UID and name, memory first. The name "" stands for the
	// pod, if it has its memory as a whole; see [State.Whole]. The blocks of init containers are
	// those of [State.Shares]: 0 bytes if later containers took all of them over.
	Pods map[string]map[string][]Block
}

// Nodes returns the nodes of a pod's blocks by container, as [Static.Rebuild] takes them. The
// name "" is always present, without nodes if the pod does not have its memory as a whole.
// Containers without memory are omitted.
func (a Assignments) Nodes(pod string) map[string]numa.NodeSet {
	nodes := map[string]numa.NodeSet{"": 0}
	for name, blocks := range a.Pods[pod] {
		for _, b := range blocks {
			if b.Bytes > 0 {
				nodes[name] |= b.Nodes
			}
		}
	}
	return nodes
}

// kubeletState has the assignments and the free memory of the nodes, in the kubelet's JSON. The
// first format has no PodEntries.
type kubeletState struct {
	PolicyName   string                               `json:"policyName"`
	MachineState map[int]*kubeletNode                 `json:"machineState"`
	Entries      map[string]map[string][]kubeletBlock `json:"entries,omitempty"`
	PodEntries   map[string]kubeletPod                `json:"podEntries,omitempty"`
}

// kubeletFile is the JSON of memory_manager_state. The first two formats are a state and its
// Checksum. Only the second format has PodEntries, and its Checksum covers them. In the third
// format (Kubernetes 1.37), Data is the state as text; the other fields are a file of the first
// format, for older kubelets.
type kubeletFile struct {
	kubeletState
	Checksum     uint64 `json:"checksum"`
	Data         string `json:"data"`
	DataChecksum uint64 `json:"dataChecksum"`
}

type kubeletNode struct {
	Assignments int                       `json:"numberOfAssignments"`
	Memory      map[string]*kubeletMemory `json:"memoryMap"`
	Group       []int                     `json:"cells"`
}

type kubeletMemory struct {
	Total       uint64 `json:"total"`
	Reserved    uint64 `json:"systemReserved"`
	Allocatable uint64 `json:"allocatable"`
	Used        uint64 `json:"reserved"`
	Free        uint64 `json:"free"`
}

type kubeletBlock struct {
	Nodes    []int  `json:"numaAffinity"`
	Resource string `json:"type"`
	Bytes    uint64 `json:"size"`
}

type kubeletPod struct {
	Blocks []kubeletBlock `json:"memoryBlocks,omitempty"`
}

// newKubeletState returns a state with empty maps, which decoding keeps if fields are missing:
// the kubelet's checksums of an empty and a null map differ.
func newKubeletState() kubeletState {
	return kubeletState{
		MachineState: map[int]*kubeletNode{}, Entries: map[string]map[string][]kubeletBlock{}, PodEntries: map[string]kubeletPod{},
	}
}

// DecodeKubelet parses a kubelet's memory_manager_state in each of the three formats of
// Kubernetes: the first since 1.21, the second with podEntries, the third since 1.37. As in the
// kubelet, a file in the third format is never read as an older one. In the first format, the
// checksum may be missing (0). A file that is damaged, of another kind, or larger than
// [MaxKubeletFile] is an error. The assignments may exceed the machine; see [Static.Validate].
func DecodeKubelet(b []byte) (Assignments, error) {
	if len(b) > MaxKubeletFile {
		return Assignments{}, fmt.Errorf("file has %d bytes; want %d at most", len(b), MaxKubeletFile)
	}
	// The types limit the depth of nesting, and encoding/json limits it in skipped values.
	f := kubeletFile{kubeletState: newKubeletState()}
	if err := json.Unmarshal(b, &f); err != nil {
		return Assignments{}, err
	}
	if f.Data == "" && f.DataChecksum == 0 {
		return f.older()
	}
	if want := kubeletsum.OfText(f.Data); f.DataChecksum != want {
		return Assignments{}, fmt.Errorf("dataChecksum is %d; want %d", f.DataChecksum, want)
	}
	s := newKubeletState()
	if err := json.Unmarshal([]byte(f.Data), &s); err != nil {
		return Assignments{}, fmt.Errorf("decode field data: %w", err)
	}
	return s.assignments()
}

// older parses a file in the second or the first format. The checksum decides which it is.
func (f kubeletFile) older() (Assignments, error) {
	if f.Checksum == f.sum(true) {
		return f.assignments()
	}
	if want := f.sum(false); f.Checksum != 0 && f.Checksum != want {
		return Assignments{}, fmt.Errorf("checksum is %d; want %d", f.Checksum, want)
	}
	f.PodEntries = nil
	return f.assignments()
}

func (s kubeletState) assignments() (Assignments, error) {
	if len(s.MachineState) > numa.MaxNodes {
		return Assignments{}, fmt.Errorf("machineState has %d nodes; want %d at most", len(s.MachineState), numa.MaxNodes)
	}
	out := Assignments{Policy: s.PolicyName, Pods: map[string]map[string][]Block{}}
	add := func(uid, name string, list []kubeletBlock) error {
		blocks, err := fromKubelet(list)
		if err != nil || len(blocks) == 0 {
			return err
		}
		if out.Pods[uid] == nil {
			out.Pods[uid] = map[string][]Block{}
		}
		out.Pods[uid][name] = blocks
		return nil
	}
	for uid, containers := range s.Entries {
		for name, list := range containers {
			err := errors.New("a container without a name")
			if name != "" {
				err = add(uid, name, list)
			}
			if err != nil {
				return Assignments{}, fmt.Errorf("entries: pod %q, container %q: %w", uid, name, err)
			}
		}
	}
	for uid, pod := range s.PodEntries {
		if err := add(uid, "", pod.Blocks); err != nil {
			return Assignments{}, fmt.Errorf("podEntries: pod %q: %w", uid, err)
		}
	}
	return out, nil
}

// fromKubelet converts blocks, which have no particular order in a kubelet's file.
func fromKubelet(list []kubeletBlock) ([]Block, error) {
	var blocks []Block
	for _, k := range list {
		b := Block{Amount: Amount{Resource(k.Resource), k.Bytes}}
		for _, id := range k.Nodes {
			if id < 0 || id >= numa.MaxNodes || b.Nodes.Has(id) {
				return nil, fmt.Errorf("numaAffinity is %v; want different numbers from 0 to %d", k.Nodes, numa.MaxNodes-1)
			}
			b.Nodes = b.Nodes.With(id)
		}
		switch {
		case b.Nodes == 0:
			return nil, errors.New("numaAffinity is empty; want one node at least")
		case !b.Resource.known():
			return nil, fmt.Errorf("type is %q; want %s or %s<size>", k.Resource, Memory, hugePrefix)
		case slices.ContainsFunc(blocks, func(o Block) bool { return o.Resource == b.Resource }):
			return nil, fmt.Errorf("type is %q for the second time", k.Resource)
		}
		blocks = append(blocks, b)
	}
	slices.SortFunc(blocks, func(a, b Block) int { return compareResources(a.Resource, b.Resource) })
	return blocks, nil
}

// EncodeKubelet returns the state as a memory_manager_state of Kubernetes 1.37. A kubelet with
// the same policy can continue from it; older kubelets read the part that they know. Equal states
// give equal bytes. For [Static], the file also has the free memory of the machine's nodes, since
// a kubelet does not start if its own amounts differ.
func (s State) EncodeKubelet(p Policy) ([]byte, error) {
	state := newKubeletState()
	state.PolicyName = p.Name()
	for _, pod := range s.pods {
		state.Entries[pod.uid] = map[string][]kubeletBlock{}
		shares := s.Shares(pod.uid)
		for _, h := range pod.containers {
			blocks := shares[h.name]
			if pod.whole != nil { // the kubelet repeats here what init containers leave to others
				blocks = h.blocks
			}
			state.Entries[pod.uid][h.name] = toKubelet(blocks)
		}
		if pod.whole != nil && len(pod.containers) > 0 {
			state.PodEntries[pod.uid] = kubeletPod{toKubelet(pod.whole)}
		}
	}
	if st, ok := p.(*Static); ok {
		state.MachineState = st.kubeletNodes(state)
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	f := kubeletFile{kubeletState: state, Data: string(data), DataChecksum: kubeletsum.OfText(string(data))}
	f.PodEntries = nil // the first format does not have the field
	f.Checksum = f.sum(false)
	return json.Marshal(f)
}

func toKubelet(blocks []Block) []kubeletBlock {
	list := make([]kubeletBlock, len(blocks))
	for i, b := range blocks {
		list[i] = kubeletBlock{b.Nodes.IDs(), string(b.Resource), b.Bytes}
	}
	return list
}

// kubeletNodes returns the machine's nodes with the amounts that blocks use. As in the kubelet,
// the blocks of the pod as a whole count if there are any, otherwise those of its containers. A
// block fills its nodes one after the other, and counts as an assignment of each node, even of
// those that need not give any bytes.
func (p *Static) kubeletNodes(s kubeletState) map[int]*kubeletNode {
	nodes := map[int]*kubeletNode{}
	for at, n := range p.machine.Nodes {
		node := &kubeletNode{Memory: map[string]*kubeletMemory{}, Group: []int{n.ID}}
		for i, r := range p.resources {
			total := capacity(n, r)
			if size, huge := r.PageSize(); r == Memory {
				total = n.Memory // Total here includes huge pages
			} else if _, has := n.HugePages[size]; huge && !has {
				continue
			}
			node.Memory[string(r)] = &kubeletMemory{Total: total, Reserved: p.reserved[n.ID][r], Allocatable: p.give[at][i], Free: p.give[at][i]}
		}
		nodes[n.ID] = node
	}
	for _, uid := range slices.Sorted(maps.Keys(s.Entries)) {
		if pod, whole := s.PodEntries[uid]; whole {
			take(nodes, pod.Blocks)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.Entries[uid])) {
			take(nodes, s.Entries[uid][name])
		}
	}
	return nodes
}

// take subtracts blocks from the free memory of nodes, down to 0.
func take(nodes map[int]*kubeletNode, blocks []kubeletBlock) {
	for _, b := range blocks {
		left := b.Bytes
		for _, id := range b.Nodes {
			node := nodes[id]
			if node == nil {
				continue
			}
			node.Assignments++
			node.Group = b.Nodes
			if m := node.Memory[b.Resource]; m != nil {
				taken := min(left, m.Free)
				m.Used, m.Free, left = m.Used+taken, m.Free-taken, left-taken
			}
		}
	}
}
