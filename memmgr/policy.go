package memmgr

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Policy decides from which nodes containers get memory. Methods have no side effects: they take
// a state and return the next one. They may be called concurrently. The owner of the state must
// base each decision on the result of the previous one.
//
// Other policies can be added by implementing these four methods. [Static] and [None] are the
// kubelet's.
type Policy interface {
	// Name returns the name of the policy, which saved states contain; see [State.EncodePod].
	Name() string
	// Hints returns the sets of nodes that can serve a container. container is its index in the
	// pod, or -1 for the pod as a whole. If the request cannot be served, List is empty and Any
	// is false.
	Hints(s State, pod numa.Pod, container int) numa.Hints
	// Allocate assigns memory to a container. If container is -1, it assigns memory to all
	// containers of the pod at once. hint is the merged hint of all resources; a hint without
	// nodes allows any nodes. Allocate keeps an existing assignment. If Allocate fails, it
	// returns s.
	Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error)
	// Release frees the memory of a container. If it has none, Release does nothing.
	Release(s State, podUID, container string) State
}

// Resizer is a [Policy] that can reject resizes of running pods. Other policies allow all.
type Resizer interface {
	// Resize returns an error if a running pod cannot be resized. current has its present
	// requests, and wanted the requests after the resize. After an error, the caller need not try
	// again: the result would be the same.
	Resize(s State, current, wanted numa.Pod) error
}

// The names of the kubelet's policies.
const (
	NoneName   = "None"
	StaticName = "Static"
)

// New returns a policy by its name in a KubeletConfiguration.
func New(name string, cfg Config) (Policy, error) {
	switch name {
	case NoneName:
		return None{}, nil
	case StaticName:
		p, err := NewStatic(cfg)
		if err != nil {
			return nil, err // not a Policy with a nil *Static
		}
		return p, nil
	case "BestEffort":
		return nil, fmt.Errorf("memory manager policy BestEffort is not available for this platform; want %s or %s", NoneName, StaticName)
	}
	return nil, fmt.Errorf("memory manager policy %q is not known; want %s or %s", name, NoneName, StaticName)
}

// None is the policy that assigns no memory, so that the kernel chooses the nodes.
type None struct{}

// Name returns the policy's name in a KubeletConfiguration.
func (None) Name() string { return NoneName }

// Hints returns no preference.
func (None) Hints(State, numa.Pod, int) numa.Hints {
	return numa.Hints{Resource: string(Memory), Any: true}
}

// Allocate returns s.
func (None) Allocate(s State, _ numa.Pod, _ int, _ numa.Hint) (State, error) { return s, nil }

// Release returns the state without a pod, like [State.Without].
func (None) Release(s State, podUID, container string) State { return s.Without(podUID, container) }
