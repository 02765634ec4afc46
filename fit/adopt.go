package fit

import (
	"errors"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// Running has the CPUs and memory nodes of a pod's running containers, by name, from the kernel
// or from records.
type Running struct {
	CPUs  map[string]numa.CPUSet  // see cpumgr.Rebuild
	Nodes map[string]numa.NodeSet // see memmgr.Static.Rebuild; only of live containers
}

// rebuilder is a memory policy that can compute its state from running containers. Policy
// None and custom policies need not implement it.
type rebuilder interface {
	Rebuild(s memmgr.State, pods []numa.Pod, running map[string]map[string]numa.NodeSet) (memmgr.State, []memmgr.Problem)
}

// Adopt returns the state after adding pods that are already running. running has the CPUs and
// nodes of their containers, by UID of the pod. If two pods have the same CPU, the first one in
// pods keeps it. The errors name the containers that could not keep theirs; these containers use
// the shared CPUs.
func (n Placement) Adopt(pods []numa.Pod, running map[string]Running) (State, []error) {
	s := n.State
	var problems []error
	nodes := map[string]map[string]numa.NodeSet{}
	for _, pod := range pods {
		r := running[pod.UID]
		if r.Nodes != nil {
			nodes[pod.UID] = r.Nodes
		}
		if len(r.CPUs) == 0 {
			continue
		}
		// Pods are adopted one after the other, so that the first ones take precedence.
		next, more := n.CPU.Adopt(s.CPU, pod, r.CPUs)
		s.CPU = next
		for _, p := range more {
			problems = append(problems, p)
		}
	}
	// Memory is rebuilt for all pods at once.
	if m, ok := n.Memory.(rebuilder); ok {
		next, more := m.Rebuild(s.Memory, pods, nodes)
		s.Memory = next
		for _, p := range more {
			problems = append(problems, errors.New(p.String()))
		}
	}
	return s, problems
}
