package cpumgr

import (
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Reservation has the CPUs that are reserved for the system and never assigned to a container
// exclusively.
type Reservation struct {
	// MilliCPU is the reserved amount in thousandths of a CPU: the sum of systemReserved,
	// kubeReserved and the hard eviction threshold. It is rounded up to whole CPUs, which are
	// chosen like those of a container.
	MilliCPU int64
	// CPUs lists the reserved CPUs (the kubelet's reservedSystemCPUs). If it is empty, the policy
	// chooses them. If MilliCPU is not 0, the number of CPUs must match it.
	CPUs numa.CPUSet
}

// Static is the kubelet's policy static. A container of a Guaranteed pod that requests a whole
// number of CPUs gets them exclusively; all other containers share the rest. It is immutable and
// safe for concurrent use.
type Static struct {
	l        *layout
	o        Options
	reserved numa.CPUSet
	// siblings are the CPUs of all cores that have a reserved CPU. With FullPCPUsOnly, none of
	// these CPUs is allocated.
	siblings numa.CPUSet
	// candidates are the sets of nodes for hints, computed once.
	candidates []candidate
}

// NewStatic validates its arguments and returns the policy. The error has all mistakes.
func NewStatic(m numa.Machine, r Reservation, o Options) (*Static, error) {
	errs := []error{m.Validate(), o.validate()}
	if errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	p := &Static{l: newLayout(m), o: o}
	if o.AlignBySocket && len(p.l.sockets) > len(p.l.nodes) {
		errs = append(errs, fmt.Errorf("CPU manager policy option %q is of no use with %d sockets and %d NUMA nodes; want no fewer nodes than sockets", "align-by-socket", len(p.l.sockets), len(p.l.nodes)))
	}
	var err error
	if p.reserved, err = p.reserve(r); err != nil {
		errs = append(errs, err)
	}
	if o.StrictReservation && err == nil && p.Allocatable().Empty() {
		errs = append(errs, fmt.Errorf("reserved CPUs %s are all CPUs of the machine; want some left for containers", p.reserved))
	}
	p.siblings = p.l.siblings(p.reserved)
	p.candidates = p.l.candidates()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// reserve chooses the reserved CPUs, or validates the configured ones. Equal arguments give the
// same CPUs after each restart, so they need not be stored.
func (p *Static) reserve(r Reservation) (numa.CPUSet, error) {
	if unknown := r.CPUs.Minus(p.l.all); !unknown.Empty() {
		return numa.CPUSet{}, fmt.Errorf("reserved CPUs %s: the machine has no CPU %s; want some of %s", r.CPUs, unknown, p.l.all)
	}
	if r.MilliCPU < 0 || r.MilliCPU == 0 && r.CPUs.Empty() {
		return numa.CPUSet{}, fmt.Errorf("reservation of %dm CPU; policy static needs more than 0, or containers that share could be left without CPUs", r.MilliCPU)
	}
	count := int((r.MilliCPU + 999) / 1000)
	switch {
	case r.CPUs.Empty():
		// Whole cores are better for the system, but their lack must not prevent the agent from
		// starting.
		o := p.o
		o.FullPCPUsOnly = false
		cpus, err := p.l.take(p.l.all, count, 0, o)
		if err != nil {
			return numa.CPUSet{}, fmt.Errorf("reservation of %dm CPU: %w", r.MilliCPU, err)
		}
		return cpus, nil
	case r.MilliCPU > 0 && r.CPUs.Len() != count:
		return numa.CPUSet{}, fmt.Errorf("reserved CPUs %s are %d, but %dm CPU are reserved; want %d", r.CPUs, r.CPUs.Len(), r.MilliCPU, count)
	}
	return r.CPUs, nil
}

// Start returns the state in which all containers share the CPUs.
func (p *Static) Start() State { return NewState(p.pool()) }

// pool returns the shared CPUs of a machine without assignments.
func (p *Static) pool() numa.CPUSet {
	if p.o.StrictReservation {
		return p.Allocatable()
	}
	return p.l.all
}

// Allocatable returns the CPUs that are not reserved.
func (p *Static) Allocatable() numa.CPUSet { return p.l.all.Minus(p.reserved) }

// free returns the CPUs that can be assigned to containers of a pod, including those that an init
// container of the pod leaves.
func (p *Static) free(s State, podUID string) numa.CPUSet {
	return s.shared.Minus(p.reserved).Union(s.Reusable(podUID))
}

// wants returns the number of exclusive CPUs that a container gets, or 0 if it shares. As in the
// kubelet, a container of a pod with pod-level resources gets CPUs only if its requests of CPU
// and memory equal its limits.
func (p *Static) wants(pod numa.Pod, c numa.Container) int {
	if !pod.Guaranteed || pod.Resources != nil && (!p.o.PodLevel || !c.Bound) {
		return 0
	}
	return c.WholeCPUs()
}

// wantsWhole returns the number of CPUs that a pod gets for all its containers together, or 0 if
// CPUs are assigned to each container.
func (p *Static) wantsWhole(pod numa.Pod) int {
	if !pod.Guaranteed || !p.o.PodLevel || pod.Resources == nil {
		return 0
	}
	return pod.Resources.WholeCPUs()
}

// Allocate assigns CPUs to a container. See [Policy].
//
// With [WholePod] and Options.PodLevel, a pod with pod-level resources gets a pool, from which
// its containers get their CPUs. In other pods, either all containers get their CPUs or none
// does.
func (p *Static) Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error) {
	if container == WholePod {
		return p.allocatePod(s, pod, hint)
	}
	if container < 0 || container >= len(pod.Containers) {
		return s, fmt.Errorf("container index %d: pod %s has only %d containers", container, pod.UID, len(pod.Containers))
	}
	c := pod.Containers[container]
	n := p.wants(pod, c)
	if n == 0 {
		return s, nil
	}
	has := s.pods[pod.UID]
	if _, ok := has.container(c.Name); ok || !has.Pool.Empty() {
		return s, nil // the pool was divided when it was allocated
	}
	cpus, err := p.take(s, pod.UID, n, hint)
	if err != nil {
		return s, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return s.with(pod.UID, ContainerCPUs{Name: c.Name, Kind: c.Kind, CPUs: cpus}), nil
}

// take chooses n CPUs for a pod or one of its containers. Reusable CPUs of the pod count as free.
func (p *Static) take(s State, podUID string, n int, hint numa.Hint) (numa.CPUSet, error) {
	if p.o.FullPCPUsOnly {
		// Siblings of reserved CPUs do not count, since taking one would leave the system with
		// half of a core.
		countable := s.shared.Minus(p.siblings).Union(s.Reusable(podUID))
		if err := p.checkSMT(n, countable); err != nil {
			return numa.CPUSet{}, err
		}
	}
	return p.l.take(p.free(s, podUID), n, hint.Nodes, p.o)
}

// checkSMT returns an error if n CPUs cannot be allocated as whole cores: because of their
// number, or because too few of the countable CPUs are in whole cores.
func (p *Static) checkSMT(n int, countable numa.CPUSet) error {
	if n%p.l.minThreads != 0 {
		return &SMTAlignmentError{Requested: n, PerCore: p.l.minThreads}
	}
	if whole := p.l.wholeCores(countable); n > whole.Len() {
		return p.l.misaligned(whole, n)
	}
	return nil
}

// Release frees the CPUs of a container, or of a whole pod if the name is "".
func (p *Static) Release(s State, podUID, container string) State {
	return s.Without(podUID, container)
}
