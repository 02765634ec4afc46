package memmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Problem is a mismatch between a state and the machine or the running containers. A Problem does
// not prevent an agent from starting.
type Problem struct {
	// Pod is the UID, and Container the name. Container is "" for a pod as a whole,
	// and both are "" for a set of nodes.
	Pod, Container string
	Err            error
}

func (p Problem) String() string {
	var placement *PlacementError // its text names both
	switch {
	case p.Pod == "", errors.As(p.Err, &placement):
		return p.Err.Error()
	case p.Container == "":
		return fmt.Sprintf("pod %s: %v", p.Pod, p.Err)
	}
	return fmt.Sprintf("container %s of pod %s: %v", p.Container, p.Pod, p.Err)
}

// Validate removes pods with nodes or resources that the machine does not have, and reports them.
// It also reports nodes whose assignments exceed their memory, and nodes that serve different
// sets of nodes. The pods of such nodes are kept, but nothing more is allocated from these nodes
// until enough pods are gone.
func (p *Static) Validate(s State) (State, []Problem) {
	s, problems := p.drop(s)
	return s, append(problems, p.conflicts(s)...)
}

// drop removes assignments that the machine cannot have.
func (p *Static) drop(s State) (State, []Problem) {
	var problems []Problem
	for _, uid := range s.Pods() {
		if err := p.foreign(s.entry(uid)); err != nil {
			problems = append(problems, Problem{Pod: uid, Err: err})
			s = s.WithoutPod(uid)
		}
	}
	return s, problems
}

func (p *Static) foreign(e *entry) error {
	blocks := slices.Clone(e.whole)
	for _, h := range e.containers {
		blocks = append(blocks, h.blocks...)
	}
	for _, b := range blocks {
		if !b.Nodes.SubsetOf(p.memory) {
			return fmt.Errorf("has %s of NUMA nodes %s; the machine has memory on nodes %s", b.Resource, b.Nodes, p.memory)
		}
		if !slices.Contains(p.resources, b.Resource) {
			return fmt.Errorf("has %s; the machine has only %v", b.Resource, p.resources)
		}
	}
	return nil
}

// conflicts reports nodes with conflicting or excessive assignments.
func (p *Static) conflicts(s State) []Problem {
	var problems []Problem
	a := p.accounts(s)
	for _, g := range a.groups(a.taken) {
		if g.mixed {
			problems = append(problems, Problem{Err: fmt.Errorf("NUMA nodes %s serve containers on different sets of nodes; no memory is allocated from them until only one set is left", g.nodes)})
		}
		for i, has := range p.room(g.nodes) {
			if g.used[i] > has {
				problems = append(problems, Problem{Err: fmt.Errorf("NUMA nodes %s: %d bytes of %s are allocated; the nodes have %d", g.nodes, g.used[i], p.resources[i], has)})
			}
		}
	}
	return problems
}

var errUnpinned = errors.New("runs on any node, so its memory is not accounted for")

// Rebuild completes a state from the running containers, after a restart of the agent. s is the
// state that was read from files, and may be empty. pods are the admitted pods. running has the
// cpuset.mems of their live containers, by pod UID and container name. The value is 0 for a
// container without assigned memory, whose cpuset.mems file is empty.
//
// A live container keeps its nodes. A container that should be running but is not gets memory
// from what remains, if possible on the nodes of its pod. Containers whose nodes cannot be
// determined are reported, and not accounted for.
//
// running may also have the nodes that a kubelet assigned; see [Assignments.Nodes]. In that case
// the name "" has the nodes of the pod as a whole. Without that name, a pod with pod-level
// resources counts as assigned as a whole if a container that shares them has nodes.
func (p *Static) Rebuild(s State, pods []numa.Pod, running map[string]map[string]numa.NodeSet) (State, []Problem) {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b numa.Pod) int { return cmp.Compare(a.UID, b.UID) })
	s, problems := p.drop(s)
	var more []Problem
	for _, pod := range pods {
		s, more = p.observe(s, pod, running[pod.UID])
		problems = append(problems, more...)
	}
	for _, pod := range pods {
		s, more = p.resume(s, pod, running[pod.UID])
		problems = append(problems, more...)
	}
	return s, append(problems, p.conflicts(s)...)
}

// missing returns the indices of containers that should have memory and do not.
func (p *Static) missing(s State, pod numa.Pod) []int {
	var list []int
	if e := s.entry(pod.UID); e != nil && e.whole != nil {
		return nil
	}
	for i, c := range pod.Containers {
		if len(p.request(pod, i)) > 0 && s.find(pod.UID, c.Name).name == "" {
			list = append(list, i)
		}
	}
	return list
}

// observe records the nodes of a pod's live containers.
func (p *Static) observe(s State, pod numa.Pod, live map[string]numa.NodeSet) (State, []Problem) {
	if nodes := p.sharing(pod, live); nodes != 0 && s.entry(pod.UID) == nil {
		return s.with(pod.UID, wholePod(pod, p.request(pod, -1), nodes)), nil
	}
	var problems []Problem
	for _, i := range p.missing(s, pod) {
		c := pod.Containers[i]
		nodes, ok := live[c.Name]
		if !ok {
			continue
		}
		var err error
		switch mems := nodes & p.memory; {
		case nodes == 0:
			err = errUnpinned
		case !nodes.SubsetOf(p.machine.AllNodes()):
			err = fmt.Errorf("runs on nodes %s; the machine has %s", nodes, p.machine.AllNodes())
		case mems == 0:
			err = fmt.Errorf("runs on nodes %s, which have no memory", nodes)
		default:
			s = s.give(pod.UID, holder{c.Name, i, c.Kind, blocksOn(mems, p.request(pod, i))})
		}
		if err != nil {
			problems = append(problems, Problem{pod.UID, c.Name, err})
		}
	}
	return s, problems
}

// sharing returns the nodes of a pod that has its resources as a whole.
func (p *Static) sharing(pod numa.Pod, live map[string]numa.NodeSet) numa.NodeSet {
	var nodes numa.NodeSet
	if pod.Resources == nil || len(p.request(pod, -1)) == 0 {
		return 0
	}
	if whole, told := live[""]; told {
		return whole & p.memory
	}
	for _, c := range pod.Containers {
		if !c.Bound {
			nodes |= live[c.Name]
		}
	}
	return nodes & p.memory
}

// resume assigns memory to those containers of a pod that are about to start.
func (p *Static) resume(s State, pod numa.Pod, live map[string]numa.NodeSet) (State, []Problem) {
	var problems []Problem
	for _, i := range p.missing(s, pod) {
		c := pod.Containers[i]
		_, runs := live[c.Name]
		passed := c.Kind == numa.Init && slices.ContainsFunc(pod.Containers[i+1:], func(later numa.Container) bool {
			_, ok := live[later.Name]
			return ok
		})
		if runs || passed {
			continue
		}
		var near numa.NodeSet
		for _, b := range s.Charges(pod.UID) {
			near |= b.Nodes
		}
		next, err := p.Allocate(s, pod, i, numa.Hint{Nodes: near})
		if err != nil {
			next, err = p.Allocate(s, pod, i, numa.Hint{})
		}
		if err != nil {
			problems = append(problems, Problem{pod.UID, c.Name, err})
			continue
		}
		s = next
	}
	return s, problems
}
