package cpumgr

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// State is the assignment of CPUs to containers. It is an immutable value: methods return new
// states, which share unchanged parts. It is safe for concurrent use. The zero value has no CPUs;
// a policy's Start returns the first state.
type State struct {
	shared numa.CPUSet
	pods   map[string]PodCPUs // by UID
}

// PodCPUs are the CPUs that a policy has assigned to one pod and its containers.
type PodCPUs struct {
	UID string
	// Pool has the CPUs of the pod as a whole (KEP-5526, pod-level resource managers). It is
	// empty if only single containers of the pod have CPUs.
	Pool numa.CPUSet
	// Containers are the containers with CPUs, in ascending order of name. The
	// slice is shared and read-only.
	Containers []ContainerCPUs
}

// ContainerCPUs are the CPUs on which one container runs instead of the shared ones.
type ContainerCPUs struct {
	Name string
	Kind numa.Kind
	CPUs numa.CPUSet
	// Pooled reports that other containers of the pod share the CPUs. Otherwise
	// they are exclusive.
	Pooled bool
}

// NewState returns the state of a machine without assignments, in which all containers use the
// shared CPUs. It is for policies outside this package.
func NewState(shared numa.CPUSet) State { return State{shared: shared} }

// Shared returns the CPUs of all containers without exclusive CPUs. The empty set means that
// these containers may use all CPUs (policy none), or that no CPU is left for them (only with
// strict reservation).
func (s State) Shared() numa.CPUSet { return s.shared }

// Pods returns the UIDs of pods that have CPUs, in ascending order.
func (s State) Pods() []string { return slices.Sorted(maps.Keys(s.pods)) }

// Pod returns the CPUs of a pod, and whether it has any.
func (s State) Pod(uid string) (PodCPUs, bool) {
	p, ok := s.pods[uid]
	return p, ok
}

// Exclusive returns the exclusive CPUs of a container. The set is empty if the container shares
// its CPUs.
func (s State) Exclusive(podUID, container string) numa.CPUSet {
	if c, ok := s.pods[podUID].container(container); ok && !c.Pooled {
		return c.CPUs
	}
	return numa.CPUSet{}
}

// Wanted returns the cpuset for a container: its exclusive CPUs, those it shares
// with its pod, or the shared pool.
func (s State) Wanted(podUID, container string) numa.CPUSet {
	if c, ok := s.pods[podUID].container(container); ok {
		return c.CPUs
	}
	return s.shared
}

// Reusable returns the CPUs of a pod's init containers that its later containers may use: those
// that no sidecar or regular container has. A pod with a pool has no reusable CPUs, since its pool
// is divided at the allocation.
func (s State) Reusable(podUID string) numa.CPUSet {
	p := s.pods[podUID]
	if !p.Pool.Empty() {
		return numa.CPUSet{}
	}
	var init, staying numa.CPUSet
	for _, c := range p.Containers {
		if c.Kind == numa.Init {
			init = init.Union(c.CPUs)
		} else {
			staying = staying.Union(c.CPUs)
		}
	}
	return init.Minus(staying)
}

// Isolation says with whom a container shares its CPUs.
type Isolation int

// Containers share CPUs with the whole machine, share them with their pod, or have exclusive
// CPUs. Exclusive CPUs need no CFS quota, which would only throttle (the kubelet's
// DisableCPUQuotaWithExclusiveCPUs).
const (
	SharesHost Isolation = iota
	SharesPod
	OwnCPUs
)

// Isolation says with whom a container shares its CPUs.
func (s State) Isolation(podUID, container string) Isolation {
	switch c, ok := s.pods[podUID].container(container); {
	case !ok:
		return SharesHost
	case c.Pooled:
		return SharesPod
	default:
		return OwnCPUs
	}
}

// WithPod returns s with the CPUs of a pod replaced. CPUs that the pod no longer has return to
// the shared pool; its new CPUs leave it. A pod without containers is removed. s is not modified.
func (s State) WithPod(p PodCPUs) State {
	if len(p.Containers) == 0 {
		p.Pool = numa.CPUSet{}
	}
	next := State{shared: s.shared.Union(s.pods[p.UID].held()).Minus(p.held()), pods: maps.Clone(s.pods)}
	if next.pods == nil {
		next.pods = map[string]PodCPUs{}
	}
	delete(next.pods, p.UID)
	if len(p.Containers) > 0 {
		p.Containers = slices.Clone(p.Containers)
		slices.SortFunc(p.Containers, func(a, b ContainerCPUs) int { return cmp.Compare(a.Name, b.Name) })
		next.pods[p.UID] = p
	}
	return next
}

// with returns s with the CPUs of one container of a pod replaced.
func (s State) with(podUID string, c ContainerCPUs) State {
	p := s.pods[podUID].without(c.Name)
	p.UID = podUID
	p.Containers = append(p.Containers, c)
	return s.WithPod(p)
}

// Without returns s with the CPUs of a container returned to the shared pool. If container is "",
// it returns the CPUs of all containers of the pod. CPUs that other containers of the pod also
// have remain assigned. A pod's pool remains assigned until its last container is removed.
func (s State) Without(podUID, container string) State {
	p, ok := s.pods[podUID]
	if !ok {
		return s
	}
	if container == "" {
		return s.WithPod(PodCPUs{UID: podUID})
	}
	if _, ok := p.container(container); !ok {
		return s
	}
	return s.WithPod(p.without(container))
}

// Equal reports whether s and t have the same assignments.
func (s State) Equal(t State) bool {
	return s.shared.Equal(t.shared) && maps.EqualFunc(s.pods, t.pods, PodCPUs.Equal)
}

// Equal reports whether p and q have the same assignments.
func (p PodCPUs) Equal(q PodCPUs) bool {
	return p.UID == q.UID && p.Pool.Equal(q.Pool) && slices.EqualFunc(p.Containers, q.Containers, func(a, b ContainerCPUs) bool {
		return a.Name == b.Name && a.Kind == b.Kind && a.Pooled == b.Pooled && a.CPUs.Equal(b.CPUs)
	})
}

// held returns all CPUs of a pod that are not in the shared pool.
func (p PodCPUs) held() numa.CPUSet {
	all := p.Pool
	for _, c := range p.Containers {
		all = all.Union(c.CPUs)
	}
	return all
}

// container returns the CPUs of a container, and whether it has any.
func (p PodCPUs) container(name string) (ContainerCPUs, bool) {
	for _, c := range p.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return ContainerCPUs{}, false
}

// without returns p without a container. The returned slice is new.
func (p PodCPUs) without(name string) PodCPUs {
	kept := make([]ContainerCPUs, 0, len(p.Containers)+1)
	for _, c := range p.Containers {
		if c.Name != name {
			kept = append(kept, c)
		}
	}
	p.Containers = kept
	return p
}
