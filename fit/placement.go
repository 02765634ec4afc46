package fit

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cpumgr"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/topology"
)

// Names of CPU policies, as in the kubelet's configuration (cpuManagerPolicy).
const (
	CPUNone   = "none"
	CPUStatic = "static"
)

// PlacementConfig defines how a machine's resources are placed. With the zero value, containers
// may use all CPUs and memory. NewPlacement validates it.
type PlacementConfig struct {
	// Machine has the CPUs and memory of the machine. It is required by every policy
	// except none.
	Machine numa.Machine

	CPUPolicy  string // the default is CPUNone
	CPUOptions cpumgr.Options
	// ReservedCPUs are reserved for the system. Policy static needs some.
	ReservedCPUs cpumgr.Reservation

	MemoryPolicy string // the default is memmgr.NoneName
	// ReservedMemory is reserved for the system, by node. Policy Static needs some.
	ReservedMemory memmgr.Reserved

	TopologyPolicy  string         // the default is topology.NameNone
	TopologyScope   topology.Scope // the default is topology.ContainerScope
	TopologyOptions topology.Options

	// PodLevel also places pods with pod-level resources (the kubelet's feature gate
	// PodLevelResourceManagers, alpha).
	PodLevel bool
}

// Idle reports whether nothing is placed. Then Machine is not needed, and every pod fits. A
// topology policy alone places nothing.
func (c PlacementConfig) Idle() bool {
	return !c.placesCPUs() && !c.placesMemory()
}

func (c PlacementConfig) placesCPUs() bool { return c.CPUPolicy != "" && c.CPUPolicy != CPUNone }
func (c PlacementConfig) placesMemory() bool {
	return c.MemoryPolicy != "" && c.MemoryPolicy != memmgr.NoneName
}

// State has the CPUs and memory assigned to each container. It is immutable; see cpumgr.State
// and memmgr.State.
type State struct {
	CPU    cpumgr.State
	Memory memmgr.State
}

// Placement is a machine with its policies and the State of its assignments. Other policies may
// replace those of [NewPlacement]. It is passed by value: a decision returns a new State, which
// the caller stores.
type Placement struct {
	CPU      cpumgr.Policy
	Memory   memmgr.Policy
	Topology *topology.Manager
	State    State
}

// NewPlacement returns a Placement without pods. The error has all mistakes in cfg.
func NewPlacement(cfg PlacementConfig) (Placement, error) {
	var n Placement
	var errs [3]error
	cfg.CPUOptions.PodLevel = cfg.CPUOptions.PodLevel || cfg.PodLevel
	switch cfg.CPUPolicy {
	// Policy none assigns no CPUs, so PodLevel has no effect on it.
	case "", CPUNone:
		cfg.CPUOptions.PodLevel = false
		n.CPU, errs[0] = cpumgr.NewNone(cfg.CPUOptions)
	case CPUStatic:
		n.CPU, errs[0] = static(cfg)
	default:
		errs[0] = fmt.Errorf("CPUPolicy is %q; want %s or %s", cfg.CPUPolicy, CPUNone, CPUStatic)
	}
	name := cfg.MemoryPolicy
	if name == "" {
		name = memmgr.NoneName
	}
	n.Memory, errs[1] = memmgr.New(name, memmgr.Config{Machine: cfg.Machine, Reserved: cfg.ReservedMemory, PodLevel: cfg.PodLevel})
	n.Topology, errs[2] = newTopology(cfg)
	if err := errors.Join(errs[:]...); err != nil {
		return Placement{}, err
	}
	// The zero memmgr.State has no pods. The first state of the CPUs depends on the reserved
	// ones.
	n.State.CPU = n.CPU.Start()
	return n, nil
}

// static returns the static CPU policy, after checking that the topology policy allows its
// options. It never returns a nil *cpumgr.Static in the interface.
func static(cfg PlacementConfig) (cpumgr.Policy, error) {
	p, err := cpumgr.NewStatic(cfg.Machine, cfg.ReservedCPUs, cfg.CPUOptions)
	if err != nil {
		return nil, err
	}
	return p, cfg.CPUOptions.Conflicts(cfg.TopologyPolicy)
}

// newTopology returns the topology manager. An empty policy means none, as in the kubelet.
func newTopology(cfg PlacementConfig) (*topology.Manager, error) {
	name := cfg.TopologyPolicy
	if name == "" {
		name = topology.NameNone
	}
	policy, err := topology.NewPolicy(name, cfg.Machine, cfg.TopologyOptions)
	if err != nil {
		return nil, err
	}
	return topology.New(topology.Config{Policy: policy, Scope: cfg.TopologyScope, PodLevel: cfg.PodLevel})
}

// Container says on which CPUs and NUMA nodes one container is placed.
type Container struct {
	Name string
	// CPUs are the CPUs on which the container may run. If the set is empty, it may run on all.
	// Own reports whether the CPUs are exclusive.
	CPUs numa.CPUSet
	Own  bool
	// Nodes are the NUMA nodes of the container's memory. 0 means any node. Memory has the
	// amounts that are assigned to the container on these nodes.
	Nodes  numa.NodeSet
	Memory []memmgr.Block
	// Hint is the topology hint that was used.
	Hint numa.Hint
}

// Result is the placement of a pod.
type Result struct {
	// Containers have the order of numa.Pod.Containers. There are none if the pod does not fit.
	Containers []Container
	// Others are the providers that the caller passed, with the allocations for the pod.
	Others []topology.Provider
	// Steps are the steps of the decision; see topology.Decision.
	Steps []topology.Step
	// State is the state with the pod. If the pod does not fit, it is the Placement's own.
	State State
	// Devices are the Node's devices without those that the pod takes. Only [Admit] sets it.
	Devices Devices

	given map[string]map[int]int // how many devices the pod takes, by resource and NUMA node
}

// Fit returns the placement that a pod would get. If the pod does not fit, the error is a
// *topology.Rejection that says why. Providers of other resources, such as devices, are called
// first. Fit changes nothing. It is safe for concurrent use, and does not block.
func Fit(p Placement, pod *v1.Pod, more ...topology.Provider) (Result, error) {
	return p.Place(Pod(pod), more...)
}

// Place does the same as [Fit] for a pod of package numa. A pod that already has its resources
// keeps them.
func (n Placement) Place(pod numa.Pod, more ...topology.Provider) (Result, error) {
	// The bounded slice prevents append from writing into the caller's array. CPUs and memory
	// come last, after the providers in more.
	providers := append(more[:len(more):len(more)], cpus{n.CPU, n.State.CPU, pod}, memory{n.Memory, n.State.Memory, pod})
	d, err := n.Topology.Admit(pod, providers)
	if err != nil {
		return Result{Steps: d.Steps, State: n.State}, err
	}
	s := State{
		CPU:    d.Providers[len(more)].(cpus).state,
		Memory: d.Providers[len(more)+1].(memory).state,
	}
	r := Result{Others: d.Providers[:len(more)], Steps: d.Steps, State: s}
	for i, c := range pod.Containers {
		r.Containers = append(r.Containers, Container{
			Name: c.Name, CPUs: s.CPU.Wanted(pod.UID, c.Name), Own: s.CPU.Isolation(pod.UID, c.Name) == cpumgr.OwnCPUs,
			Nodes: s.Memory.Nodes(pod.UID, c.Name), Memory: s.Memory.Blocks(pod.UID, c.Name), Hint: d.Hints[i],
		})
	}
	return r, nil
}

// Without returns the state without a pod. An unknown pod changes nothing.
func (n Placement) Without(podUID string) State {
	return State{CPU: n.CPU.Release(n.State.CPU, podUID, ""), Memory: n.State.Memory.WithoutPod(podUID)}
}

// cpus is a topology.Provider for a CPU policy. It is a value: Allocate returns another one with
// the new state.
type cpus struct {
	policy cpumgr.Policy
	state  cpumgr.State
	pod    numa.Pod
}

func (c cpus) Hints(container int) []numa.Hints {
	return []numa.Hints{c.policy.Hints(c.state, c.pod, container)}
}

func (c cpus) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	var err error
	c.state, err = c.policy.Allocate(c.state, c.pod, container, hint)
	return c, err
}

// memory is a topology.Provider for a memory policy, like cpus.
type memory struct {
	policy memmgr.Policy
	state  memmgr.State
	pod    numa.Pod
}

func (m memory) Hints(container int) []numa.Hints {
	return []numa.Hints{m.policy.Hints(m.state, m.pod, container)}
}

func (m memory) Allocate(container int, hint numa.Hint) (topology.Provider, error) {
	var err error
	m.state, err = m.policy.Allocate(m.state, m.pod, container, hint)
	return m, err
}
