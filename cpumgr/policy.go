package cpumgr

import (
	"errors"

	"github.com/nodewright/nodewright/numa"
)

// WholePod stands for the index of a container where a pod is meant as a whole:
// the topology manager's scope "pod".
const WholePod = -1

// Policy decides who gets CPUs of its own. Methods read what they are given and
// change nothing, so that a dry run is one whose state is thrown away.
//
// Containers are named by their index in [numa.Pod].Containers, in whose order
// they are to be placed, or by [WholePod]. Methods may be called from any
// goroutine, and do not block.
type Policy interface {
	// Start is the state in which nothing is assigned.
	Start() State
	// Hints says from which NUMA nodes a container, or a pod, can be served.
	Hints(s State, pod numa.Pod, container int) numa.Hints
	// Allocate gives a container its CPUs, from the nodes of a hint if there
	// are enough. It gives none to a container that has to share, and no
	// others to one that has them already. An error may have a method Reason
	// with the word that the kubelet has for it.
	Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error)
	// Resize gives a container CPUs for a new request, in thousandths.
	Resize(s State, pod numa.Pod, container int, milliCPU int64) (State, error)
	// Release takes back the CPUs of a container, or of a whole pod if the
	// name is "". It is no mistake that there are none.
	Release(s State, podUID, container string) State
	// Adopt notes that containers of a pod have CPUs already, by name; those
	// under "" are the pod's. It keeps just these, and reports what cannot be
	// kept.
	Adopt(s State, pod numa.Pod, has map[string]numa.CPUSet) (State, []Problem)
}

// none is the policy none.
type none struct{}

// NewNone returns the policy in which all containers run on all CPUs. It takes no
// options: the argument is for those that a configuration names, and anything in it
// is an error.
func NewNone(o Options) (Policy, error) {
	if o != (Options{}) {
		return nil, errors.New("CPU manager policy none has no options")
	}
	return none{}, nil
}

// Start returns the zero State, which has no shared CPUs: no cpuset is ever
// set.
func (none) Start() State { return State{} }

func (none) Hints(State, numa.Pod, int) numa.Hints { return anyHints() }

func (none) Allocate(s State, _ numa.Pod, _ int, _ numa.Hint) (State, error) { return s, nil }

func (none) Resize(s State, _ numa.Pod, _ int, _ int64) (State, error) { return s, nil }

func (none) Release(s State, podUID, container string) State { return s.Without(podUID, container) }

// Adopt takes back what another policy gave. Cpusets of another size than a
// container's request are no such gift, and are passed over.
func (none) Adopt(s State, pod numa.Pod, has map[string]numa.CPUSet) (State, []Problem) {
	var problems []Problem
	for _, c := range pod.Containers {
		cpus := has[c.Name]
		if pod.Guaranteed && !cpus.Empty() && cpus.Len() == c.WholeCPUs() {
			problems = append(problems, Problem{pod.UID, c.Name, cpus, errors.New("policy none gives no container CPUs of its own")})
		}
	}
	return s, problems
}
