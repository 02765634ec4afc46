package resources

import (
	"context"
	"slices"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// preview is the reservation of a dry run. It has the placement of the pod or, if the pod does not
// fit, the steps of the decision.
type preview struct {
	pod    numa.Pod
	result fit.Result
}

var (
	_ part.Reservation = preview{}
	_ part.Reservation = reservation{}
)

// Commit implements part.Reservation.
func (preview) Commit(context.Context) error { return nil }

// Release implements part.Reservation.
func (preview) Release() {}

// ShowFit adds the placement of the containers, and the steps of the decision, to f. If the pod
// does not fit, it adds only the steps. If f has an entry of a container already, ShowFit completes
// it.
func (v preview) ShowFit(f *local.Fit) {
	for _, s := range v.result.Steps {
		f.Steps = append(f.Steps, subject(v.pod, s.Container)+": "+s.Explain())
	}
	for _, c := range v.result.Containers {
		show(entry(f, c.Name), c)
	}
}

// entry returns the entry of a container in f, and adds it if it is missing. The pointer is valid
// until the next call of entry.
func entry(f *local.Fit, name string) *local.FitContainer {
	i := slices.IndexFunc(f.Containers, func(c local.FitContainer) bool { return c.Name == name })
	if i < 0 {
		i = len(f.Containers)
		f.Containers = append(f.Containers, local.FitContainer{Name: name})
	}
	return &f.Containers[i]
}

func show(f *local.FitContainer, c fit.Container) {
	f.CPUs, f.Own, f.MemoryNodes = c.CPUs.String(), c.Own, nodeList(c.Nodes)
	f.Hint = local.FitHint{Nodes: nodeList(c.Hint.Nodes), Preferred: c.Hint.Preferred}
	for _, b := range c.Memory {
		if f.Memory == nil {
			f.Memory = map[string]uint64{}
		}
		f.Memory[string(b.Resource)] = b.Bytes
	}
}

// nodeList formats NUMA nodes for people. It returns "" if any nodes can be used.
func nodeList(s numa.NodeSet) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

// subject returns the name of the container or pod that a step is about.
func subject(pod numa.Pod, container int) string {
	if container < 0 {
		return "the pod"
	}
	return "container " + pod.Containers[container].Name
}
