package fit

import (
	"errors"

	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
)

// Running is what is known of a pod's containers that run, or of what they had,
// by name.
type Running struct {
	CPUs  map[string]numa.CPUSet  // see cpumgr.Rebuild
	Nodes map[string]numa.NodeSet // see memmgr.Static.Rebuild; of live containers alone
}

// rebuilder is a memory policy that can tell from what runs what was given. Policy None
// has nothing to tell, and custom policies need not.
type rebuilder interface {
	Rebuild(s memmgr.State, pods []numa.Pod, running map[string]map[string]numa.NodeSet) (memmgr.State, []memmgr.Problem)
}

// Adopt is the state with pods on it that run already, by UID: they keep what
// they have. Where two have the same, the first of pods keeps it. The problems
// are what could not be kept; those containers share.
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
		// CPU policies take one pod after the other, which is how the first of pods comes
		// first.
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
