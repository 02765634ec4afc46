package cpumgr

import (
	"errors"
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Reservation defines which CPUs are never given to a container alone, because the
// system needs them.
type Reservation struct {
	// MilliCPU is how much is reserved, in thousandths of a CPU: the sum of
	// systemReserved, kubeReserved and the hard eviction threshold. It is
	// rounded up to whole CPUs, which are taken as those of a container are.
	MilliCPU int64
	// CPUs says which (the kubelet's reservedSystemCPUs); empty for any. If
	// MilliCPU is not 0, they must be as many as it says.
	CPUs numa.CPUSet
}

// Static is the kubelet's policy static: a container of a Guaranteed pod whose
// request is a whole number of CPUs gets them for itself, and all others share
// the rest. It never changes and may be used by any number of goroutines.
type Static struct {
	l        *layout
	o        Options
	reserved numa.CPUSet
	// siblings are the CPUs of all cores with a reserved one. They are counted out
	// where only whole cores are given.
	siblings numa.CPUSet
	// candidates are counted once, for all hints.
	candidates []candidate
}

// NewStatic checks what it is given, and reports all that is wrong.
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
		errs = append(errs, fmt.Errorf("reserved CPUs %s are all of the machine, and containers must not use them; want fewer", p.reserved))
	}
	p.siblings = p.l.siblings(p.reserved)
	p.candidates = p.l.candidates()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// reserve chooses the CPUs for the system, or checks those that are named. The
// same machine and reservation give the same CPUs after each restart, which no
// file has to remember.
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
		// Whole cores for the system are better, but must not be the reason
		// for which an agent does not start.
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

// Start is the state in which all containers share.
func (p *Static) Start() State { return NewState(p.pool()) }

// pool is what there is to share while nothing is assigned.
func (p *Static) pool() numa.CPUSet {
	if p.o.StrictReservation {
		return p.Allocatable()
	}
	return p.l.all
}

// Reserved are the CPUs that no container gets for itself.
func (p *Static) Reserved() numa.CPUSet { return p.reserved }

// Allocatable are all others.
func (p *Static) Allocatable() numa.CPUSet { return p.l.all.Minus(p.reserved) }

// free are the CPUs that can still be given to containers of a pod. Those that
// an init container of the pod leaves over are among them.
func (p *Static) free(s State, podUID string) numa.CPUSet {
	return s.shared.Minus(p.reserved).Union(s.Reusable(podUID))
}

// wants is how many CPUs of its own a container of a pod gets; 0 for none. In a
// pod with resources of its own, only a container whose CPU and memory are
// bound gets CPUs, as in the kubelet.
func (p *Static) wants(pod numa.Pod, c numa.Container) int {
	if !pod.Guaranteed || pod.Resources != nil && (!p.o.PodLevel || !c.Bound) {
		return 0
	}
	return c.WholeCPUs()
}

// wantsWhole is how many CPUs a pod gets for all its containers together; 0 for
// none.
func (p *Static) wantsWhole(pod numa.Pod) int {
	if !pod.Guaranteed || !p.o.PodLevel || pod.Resources == nil {
		return 0
	}
	return pod.Resources.WholeCPUs()
}

// Allocate gives a container its CPUs. See [Policy].
//
// With [WholePod], a pod with resources of its own gets a pool of its own (if
// Options.PodLevel is set), which its containers take theirs from; of other
// pods, each container is given its CPUs, or none is.
func (p *Static) Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error) {
	if container == WholePod {
		return p.allocatePod(s, pod, hint)
	}
	if container < 0 || container >= len(pod.Containers) {
		return s, fmt.Errorf("container %d of pod %s, which has %d containers", container, pod.UID, len(pod.Containers))
	}
	c := pod.Containers[container]
	n := p.wants(pod, c)
	if n == 0 {
		return s, nil
	}
	has := s.pods[pod.UID]
	if _, ok := has.container(c.Name); ok || !has.Pool.Empty() {
		return s, nil // a pool was divided when it was given
	}
	cpus, err := p.take(s, pod.UID, n, hint)
	if err != nil {
		return s, fmt.Errorf("container %q: %w", c.Name, err)
	}
	return s.with(pod.UID, ContainerCPUs{Name: c.Name, Kind: c.Kind, CPUs: cpus}), nil
}

// take chooses n CPUs for a pod or for a container of it. The reusable CPUs
// count: they are the pod's already.
func (p *Static) take(s State, podUID string, n int, hint numa.Hint) (numa.CPUSet, error) {
	if p.o.FullPCPUsOnly {
		// Siblings of reserved CPUs do not count: taking one would leave half
		// of a core to the system.
		countable := s.shared.Minus(p.siblings).Union(s.Reusable(podUID))
		if err := p.checkSMT(n, countable); err != nil {
			return numa.CPUSet{}, err
		}
	}
	return p.l.take(p.free(s, podUID), n, hint.Nodes, p.o)
}

// checkSMT returns an error if n CPUs cannot be given as whole cores: by their
// number, or because too few of the countable ones are whole.
func (p *Static) checkSMT(n int, countable numa.CPUSet) error {
	if n%p.l.minThreads != 0 {
		return &SMTAlignmentError{Requested: n, PerCore: p.l.minThreads}
	}
	if whole := p.l.wholeCores(countable); n > whole.Len() {
		return p.l.misaligned(whole, n)
	}
	return nil
}

// Release takes back the CPUs of a container, or of a whole pod if the name is "".
func (p *Static) Release(s State, podUID, container string) State {
	return s.Without(podUID, container)
}
