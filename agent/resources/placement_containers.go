package resources

import (
	"context"
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podspec"
)

// allCreations limits the containers that can be created at the same time.
const allCreations = 1 << 30

// container is a container that was created and, as far as is known, has not ended.
type container struct {
	uid  types.UID
	name string
	// cpus is the container's cpuset. If the container has none, cpus has all CPUs of the
	// machine.
	cpus numa.CPUSet
	// unknown is true if its cpuset could not be read.
	unknown bool
	// also has the CPUs of updates that failed: the runtime may have set them
	// nevertheless.
	also numa.CPUSet
	// bound reports that the container was created with a cpuset. mems are the NUMA nodes of its
	// memory.
	bound bool
	mems  numa.NodeSet
	// asks are the resources with which the container was created. The field is nil if they were
	// not recorded.
	asks *numa.Resources
}

// Compile implements part.Compiler.
func (p *Placement) Compile(pod *v1.Pod, in *podspec.Input) error {
	if p.idle {
		return nil
	}
	if in.Pinned == nil {
		in.Pinned = map[string]podspec.Pinning{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range pod.Spec.InitContainers {
		p.compile(pod, pod.Spec.InitContainers[i].Name, in)
	}
	for i := range pod.Spec.Containers {
		p.compile(pod, pod.Spec.Containers[i].Name, in)
	}
	for i := range pod.Spec.EphemeralContainers {
		p.compile(pod, pod.Spec.EphemeralContainers[i].Name, in)
	}
	return nil
}

// compile sets the CPUs and memory nodes of one container in its Input. The caller holds p.mu.
func (p *Placement) compile(pod *v1.Pod, name string, in *podspec.Input) {
	in.Pinned[name] = p.pinning(pod.UID, name)
}

// pinning returns the CPUs and memory nodes of a container. The caller holds p.mu.
func (p *Placement) pinning(uid types.UID, name string) podspec.Pinning {
	s := p.node.State
	out := podspec.Pinning{
		CPUs:    s.CPU.Wanted(string(uid), name).String(),
		NoQuota: s.CPU.Isolation(string(uid), name) == cpumgr.OwnCPUs,
	}
	if nodes := s.Memory.Nodes(string(uid), name); nodes != 0 {
		out.MemoryNodes = nodes.String()
	}
	return out
}

// errNotRestored prevents the creation of containers on CPUs that other containers may use.
var errNotRestored = errors.New("the CPUs of running pods are not known yet")

// BeforeCreate implements part.Creator: the container is created on its current CPUs. No cpuset
// is changed until the returned function created is called.
func (p *Placement) BeforeCreate(ctx context.Context, c part.Container, conf *runtimeapi.ContainerConfig) (created func(id string, err error), err error) {
	if p.idle {
		return nil, nil
	}
	if err := p.creating.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	made := &container{uid: c.Pod.UID, name: c.Name}
	p.mu.Lock()
	restored := p.restored
	pin := p.pinning(made.uid, made.name)
	p.mu.Unlock()
	if !restored {
		p.creating.Release(1)
		return nil, errNotRestored
	}
	made.cpus, made.bound = p.cpusOf(pin.CPUs)
	if res := conf.GetLinux().GetResources(); res != nil {
		res.CpusetCpus, res.CpusetMems = pin.CPUs, pin.MemoryNodes
	}
	var once sync.Once
	return func(id string, err error) {
		once.Do(func() { p.created(made, id, err) })
	}, nil
}

func (p *Placement) created(c *container, id string, err error) {
	defer p.creating.Release(1)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[id] = c
}

// ContainerStarted implements part.ContainerWatcher: the memory of init containers that have
// completed becomes free for the pod's other containers.
func (p *Placement) ContainerStarted(c part.Container, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid, before := string(c.Pod.UID), p.node.State.Memory
	p.node.State.Memory = before.Started(uid, c.Name)
	p.version++
	if len(p.node.State.Memory.Containers(uid)) < len(before.Containers(uid)) {
		p.kubelet.outdated.Set()
	}
}

// ContainerRemoved implements part.ContainerWatcher.
func (p *Placement) ContainerRemoved(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, id)
}

// seen drops the containers of a pod that have ended.
func (p *Placement) seen(obs *observed.Pod) {
	if obs == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range obs.Containers {
		if obs.Containers[i].State == observed.Exited {
			delete(p.live, obs.Containers[i].ID)
		}
	}
}

// cpusOf parses a cpuset. If s is "", the result has all CPUs of the machine, and bound is false.
func (p *Placement) cpusOf(s string) (cpus numa.CPUSet, bound bool) {
	cpus, err := numa.ParseCPUs(s)
	if err != nil || cpus.Empty() {
		return p.cfg.Fit.Machine.AllCPUs(), false
	}
	return cpus, true
}

// liveOf returns the running containers of a pod. The caller holds p.mu.
func (p *Placement) liveOf(uid types.UID) fit.Running {
	var r fit.Running
	for _, c := range p.live {
		if c.uid != uid || c.unknown {
			continue
		}
		if r.CPUs == nil {
			r.CPUs, r.Nodes = map[string]numa.CPUSet{}, map[string]numa.NodeSet{}
		}
		r.CPUs[c.name], r.Nodes[c.name] = c.cpus, c.mems
	}
	return r
}

// anyLive reports whether containers of a pod may run. The caller holds p.mu.
func (p *Placement) anyLive(uid types.UID) bool {
	for _, c := range p.live {
		if c.uid == uid {
			return true
		}
	}
	return false
}

// dropLive drops the containers of a pod. The caller holds p.mu.
func (p *Placement) dropLive(uid types.UID) {
	for id, c := range p.live {
		if c.uid == uid {
			delete(p.live, id)
		}
	}
}

// OwnCPUs reports whether a container of the pod has exclusive CPUs. A quota on the pod's cgroup
// would only throttle them (kubelet: DisableCPUQuotaWithExclusiveCPUs); see
// cgroups.PodOptions.ExclusiveCPUs.
func (p *Placement) OwnCPUs(pod *v1.Pod) bool {
	node, _, _ := p.now()
	has, _ := node.State.CPU.Pod(string(pod.UID))
	return slices.ContainsFunc(has.Containers, func(c cpumgr.ContainerCPUs) bool { return !c.Pooled })
}
