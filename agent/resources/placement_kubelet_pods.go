package resources

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// forget drops a kubelet's allocations of a pod. It is called when the pod's own allocation is
// known. The caller holds Placement.mu.
func (k *kubeletFiles) forget(uid types.UID) {
	delete(k.cpus, uid)
	delete(k.memory, uid)
}

// withKubelet returns live, the running containers of a pod, with a kubelet's allocations of the
// other containers added. The caller holds p.mu.
func (p *Placement) withKubelet(uid types.UID, live fit.Running) fit.Running {
	return fit.Running{
		CPUs:  withTheirs(live.CPUs, p.kubelet.cpus[uid]),
		Nodes: withTheirs(live.Nodes, kubeletNodes(uid, p.kubelet.memory[uid])),
	}
}

// withTheirs adds the entries of theirs that live lacks. It may return live.
func withTheirs[V any](live, theirs map[string]V) map[string]V {
	if len(theirs) == 0 {
		return live
	}
	out := maps.Clone(theirs)
	maps.Copy(out, live)
	return out
}

// kubeletNodes returns the NUMA nodes of a pod's memory, in the form for memmgr. It returns nil
// if the pod has no memory allocated.
func kubeletNodes(uid types.UID, blocks map[string][]memmgr.Block) map[string]numa.NodeSet {
	if len(blocks) == 0 {
		return nil
	}
	return memmgr.Assignments{Pods: map[string]map[string][]memmgr.Block{string(uid): blocks}}.Nodes(string(uid))
}

// kubeletPods returns pods with a kubelet's allocations and without a checkpoint. Their specs may
// come much later, and until then no other pod may get their CPUs and memory. Running pods come
// first. The caller holds p.mu.
func (p *Placement) kubeletPods() []numa.Pod {
	uids := slices.Collect(maps.Keys(p.kubelet.cpus))
	for uid := range p.kubelet.memory {
		if _, has := p.kubelet.cpus[uid]; !has {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	var run, rest []numa.Pod
	for _, uid := range uids {
		if p.pods[uid] != nil || p.early.stopped[uid] {
			continue
		}
		pod, ok := placementKubeletPod(uid, p.kubelet.cpus[uid], p.kubelet.memory[uid])
		switch {
		case !ok:
		case p.anyLive(uid):
			run = append(run, pod)
		default:
			rest = append(rest, pod)
		}
	}
	return append(run, rest...)
}

// placementKubeletPod returns a pod whose requests match these CPUs and this memory.
func placementKubeletPod(uid types.UID, cpus map[string]numa.CPUSet, memory map[string][]memmgr.Block) (pod numa.Pod, ok bool) {
	pod = numa.Pod{UID: string(uid), Guaranteed: true}
	pool := cpus[""]
	if whole := memory[""]; !pool.Empty() || len(whole) > 0 {
		pod.Resources = &numa.Resources{MilliCPU: 1000 * int64(pool.Len()), Bound: true}
		addBlocks(pod.Resources, whole)
	}
	names := slices.Collect(maps.Keys(cpus))
	for name := range memory {
		if _, has := cpus[name]; !has {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var taken numa.CPUSet
	for _, name := range names {
		if name == "" {
			continue
		}
		c := numa.Container{Name: name, Resources: numa.Resources{Bound: true}}
		has := addBlocks(&c.Resources, memory[name])
		// If CPUs overlap, one of the two containers is an init container.
		if set, ok := cpus[name]; ok && set.IntersectLen(taken) == 0 {
			has = true
			if pool.Empty() || !set.Equal(pool) {
				c.MilliCPU = 1000 * int64(set.Len())
				taken = taken.Union(set)
			}
		}
		if has {
			pod.Containers = append(pod.Containers, c)
		}
	}
	return pod, len(pod.Containers) > 0
}

// addBlocks adds requests for exactly these blocks, and reports whether there are any.
func addBlocks(r *numa.Resources, blocks []memmgr.Block) bool {
	any := false
	for _, b := range blocks {
		size, huge := b.Resource.PageSize()
		switch {
		case b.Bytes == 0: // of an init container; other containers use it
			continue
		case huge:
			if r.HugePages == nil {
				r.HugePages = map[uint64]uint64{}
			}
			r.HugePages[size] += b.Bytes
		default:
			r.Memory += b.Bytes
		}
		any = true
	}
	return any
}
