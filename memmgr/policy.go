package memmgr

import (
	"fmt"

	"github.com/nodewright/nodewright/numa"
)

// Policy decides whose memory comes from which nodes. It changes nothing: it is
// told a state and returns the next one. Its methods may be called by any
// number of goroutines at once; whoever keeps the state takes care that each
// decision starts from the outcome of the one before.
//
// Bring your own by writing these four methods. [Static] and [None] are those
// of the kubelet.
type Policy interface {
	// Name is what saved states are marked with, see [State.EncodePod].
	Name() string
	// Hints says which nodes would do for a container, by its index in the
	// pod, or with container -1 for the pod as a whole. A request that cannot
	// be served has an empty list and not Any.
	Hints(s State, pod numa.Pod, container int) numa.Hints
	// Allocate gives a container its memory, or with container -1 all
	// containers of the pod at once. The hint is what came of merging those of
	// all resources; no nodes mean that any will do. Who holds memory already
	// keeps it. With an error the state is the one that was passed in.
	Allocate(s State, pod numa.Pod, container int, hint numa.Hint) (State, error)
	// Release takes back what a container holds; it is no error if that is
	// nothing.
	Release(s State, podUID, container string) State
}

// Resizer is a [Policy] that has a say in resizes of running pods. Without it,
// they are none of the policy's business.
type Resizer interface {
	// Resize reports whether the state allows a pod to become what it is in want;
	// an error says why not, and never will.
	Resize(s State, have, want numa.Pod) error
}

// The names of the kubelet's policies.
const (
	NoneName   = "None"
	StaticName = "Static"
)

// New makes a policy by the name it has in a KubeletConfiguration.
func New(name string, cfg Config) (Policy, error) {
	switch name {
	case NoneName:
		return None{}, nil
	case StaticName:
		p, err := NewStatic(cfg)
		if err != nil {
			return nil, err // and not a Policy that holds no Static
		}
		return p, nil
	case "BestEffort":
		return nil, fmt.Errorf("memory manager policy BestEffort is not available for this platform; want %s or %s", NoneName, StaticName)
	}
	return nil, fmt.Errorf("memory manager policy %q is not known; want %s or %s", name, NoneName, StaticName)
}

// None is the policy by which memory comes from wherever the kernel takes it.
type None struct{}

// Name is that of a KubeletConfiguration.
func (None) Name() string { return NoneName }

// Hints has no preference.
func (None) Hints(State, numa.Pod, int) numa.Hints {
	return numa.Hints{Resource: string(Memory), Any: true}
}

// Allocate gives nothing.
func (None) Allocate(s State, _ numa.Pod, _ int, _ numa.Hint) (State, error) { return s, nil }

// Release is [State.Without].
func (None) Release(s State, podUID, container string) State { return s.Without(podUID, container) }
