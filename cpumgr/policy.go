package cpumgr

import (
	"errors"

	"github.com/nodewright/nodewright/numa"
)

// WholePod stands, in place of the index of a container, for the pod as a whole: the
// topology manager's scope "pod".
const WholePod = -1

// Policy decides which containers get exclusive CPUs. Methods have no side effects: for a dry
// run, discard the returned state.
//
// The argument container is an index of [numa.Pod].Containers, or [WholePod]. Containers are placed
// in the order of that list. Methods may be called concurrently, and do not block.
type Policy interface {
	// Start returns the state without assignments.
	Start() State
	// Hints returns the sets of NUMA nodes that can serve a container or a pod.
	Hints(s State, pod numa.Pod, container int) numa.Hints
	// Allocate assigns CPUs to a container, from the nodes of the hint if they have enough. A
	// container that has to share gets none, and a container that has CPUs keeps them. An error
	// may have a method Reason that returns the kubelet's reason.
	Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error)
	// Resize changes the CPUs of a container to a new request, in thousandths of a CPU.
	Resize(s State, pod numa.Pod, container int, milliCPU int64) (State, error)
	// Release frees the CPUs of a container, or of a whole pod if the name is "". If there are
	// none, it does nothing.
	Release(s State, podUID, container string) State
	// Adopt records the CPUs that containers of a pod already have. held has the CPUs by
	// container name; the name "" stands for the pod's pool. It keeps exactly these CPUs, and
	// reports those that cannot be kept.
	Adopt(s State, pod numa.Pod, held map[string]numa.CPUSet) (State, []Problem)
}

type none struct{}

// NewNone returns the policy none, in which all containers run on all CPUs. Any option is an
// error.
func NewNone(o Options) (Policy, error) {
	if o != (Options{}) {
		return nil, errors.New("CPU manager policy none has no options")
	}
	return none{}, nil
}

// Start returns the zero State. It has no shared CPUs: cpusets are never set.
func (none) Start() State { return State{} }

func (none) Hints(State, numa.Pod, int) numa.Hints { return anyHints() }

func (none) Allocate(s State, _ numa.Pod, _ int, _ numa.Hint) (State, error) { return s, nil }

func (none) Resize(s State, _ numa.Pod, _ int, _ int64) (State, error) { return s, nil }

func (none) Release(s State, podUID, container string) State { return s.Without(podUID, container) }

// Adopt reports CPUs that another policy assigned. It ignores a cpuset whose size differs from
// the container's request, since no policy assigned it.
func (none) Adopt(s State, pod numa.Pod, held map[string]numa.CPUSet) (State, []Problem) {
	var problems []Problem
	for _, c := range pod.Containers {
		cpus := held[c.Name]
		if pod.Guaranteed && !cpus.Empty() && cpus.Len() == c.WholeCPUs() {
			problems = append(problems, Problem{pod.UID, c.Name, cpus, errors.New("policy none allocates no exclusive CPUs")})
		}
	}
	return s, problems
}
