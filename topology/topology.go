package topology

import (
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Provider is the state of one resource manager, as an immutable value from which one pod can
// allocate resources. Its methods must not wait for other pods. They may call a plugin, as the
// device manager does.
type Provider interface {
	// Hints returns the sets of nodes that can serve the requests of a container or, if container
	// is [WholePod], of the pod. It returns one entry for each requested resource.
	Hints(container int) []numa.Hints
	// Allocate returns a copy of the provider in which the resources of a container are taken,
	// near the nodes of the hint if it has any. The receiver does not change. If the error has a
	// method Reason() string, the pod is rejected with that reason.
	Allocate(container int, hint numa.Hint) (Provider, error)
}

// WholePod stands for the pod as a whole in place of a container's index. Providers get it only
// in PodScope.
const WholePod = -1

// Scope says whether containers are placed one by one or all together.
type Scope string

// The scopes, by their names in the kubelet's configuration
// (topologyManagerScope).
const (
	// ContainerScope places each container on its own, in the order of
	// numa.Pod.Containers.
	ContainerScope Scope = "container"
	// PodScope finds one hint for all containers of a pod.
	PodScope Scope = "pod"
)

// Config holds what a Manager needs. The zero value means the defaults.
type Config struct {
	Policy Policy // None
	Scope  Scope  // ContainerScope
	// PodLevel allocates the pod-level resources (numa.Pod.Resources) of a pod together, as
	// [WholePod]. It has an effect only with PodScope. In the kubelet this is the feature gate
	// PodLevelResourceManagers.
	PodLevel bool
}

// Manager decides on the placement of pods. It has no state: the providers contain the
// allocations. It is safe for concurrent use.
type Manager struct {
	cfg Config
}

// New validates cfg and returns a Manager.
func New(cfg Config) (*Manager, error) {
	if cfg.Policy == nil {
		cfg.Policy = None{}
	}
	switch cfg.Scope {
	case "":
		cfg.Scope = ContainerScope
	case ContainerScope, PodScope:
	default:
		return nil, fmt.Errorf("topology: Config.Scope is %q; want %s or %s", cfg.Scope, ContainerScope, PodScope)
	}
	return &Manager{cfg}, nil
}

// Decision is the placement of a pod, and its reasons.
type Decision struct {
	// Hints are the hints by which the containers were placed, in the order of
	// numa.Pod.Containers. If the pod is rejected, Hints is nil.
	Hints []numa.Hint
	// Providers has the new values of the providers, in the given order. The new values include
	// the pod's allocations. If the pod is rejected, Providers has the given values.
	Providers []Provider
	// Steps are the merges, in order. If the pod is rejected, the last one belongs to the
	// rejected container. With policy None there are no steps.
	Steps []Step
}

// Step is one merge: the hints of the resources, and the result.
type Step struct {
	Container int          // index of the container, or WholePod
	Hints     []numa.Hints // hints of all providers, in their order
	Hint      numa.Hint
	Admitted  bool
}

// Admit decides whether and where a pod can be placed. It changes nothing: to apply the decision,
// continue with Decision.Providers; for a dry run, drop the decision. Providers are called in the
// given order; the kubelet's order is devices, CPUs, memory.
//
// If the pod is rejected, the error is a [*Rejection]. Admit may block only as long as the
// providers do. It counts no metrics.
func (m *Manager) Admit(pod numa.Pod, providers []Provider) (Decision, error) {
	a := admission{cfg: m.cfg, pod: pod}
	a.Hints = make([]numa.Hint, len(pod.Containers))
	a.Providers = slices.Clone(providers)
	if err := a.admit(); err != nil {
		return Decision{Providers: slices.Clone(providers), Steps: a.Steps}, err
	}
	return a.Decision, nil
}

// admission is the state of one Admit call.
type admission struct {
	Decision
	cfg Config
	pod numa.Pod
}

// admit places and allocates the containers one after the other, so that each takes the earlier
// allocations into account; in PodScope, all at once. Policy none ignores the scope, as in the
// kubelet.
func (a *admission) admit() error {
	if _, none := a.cfg.Policy.(None); !none && a.cfg.Scope == PodScope {
		return a.together()
	}
	for i := range a.pod.Containers {
		if err := a.place(i); err != nil {
			return err
		}
		if err := a.allocate(i, a.Hints[i]); err != nil {
			return err
		}
	}
	return nil
}

// together finds one hint for the pod, then allocates all containers by it.
func (a *admission) together() error {
	hint, err := a.merge(WholePod)
	if err != nil {
		return err
	}
	for i := range a.Hints {
		a.Hints[i] = hint
	}
	if a.podLevel() {
		return a.allocate(WholePod, hint)
	}
	for i := range a.pod.Containers {
		if err := a.allocate(i, hint); err != nil {
			return err
		}
	}
	return nil
}

// podLevel reports whether the pod-level resources are allocated as a whole.
func (a *admission) podLevel() bool { return a.cfg.PodLevel && a.pod.Resources != nil }

// place finds the hint for a container and stores it in Hints.
func (a *admission) place(container int) error {
	if _, none := a.cfg.Policy.(None); none {
		return nil
	}
	hint, err := a.merge(container)
	a.Hints[container] = hint
	return err
}

// merge collects the hints of all providers for a container or the pod, and returns the policy's
// result. It records each merge as a Step, admitted or not.
func (a *admission) merge(container int) (numa.Hint, error) {
	step := Step{Container: container}
	for _, p := range a.Providers {
		step.Hints = append(step.Hints, p.Hints(container)...)
	}
	step.Hint, step.Admitted = a.cfg.Policy.Merge(step.Hints)
	a.Steps = append(a.Steps, step)
	if !step.Admitted {
		return numa.Hint{}, a.misplaced(step)
	}
	return step.Hint, nil
}

// allocate lets each provider allocate a container's requests, and replaces the provider by its
// new value. If a provider fails, the earlier ones have been replaced already; Admit then drops
// all new values.
func (a *admission) allocate(container int, hint numa.Hint) error {
	for i, p := range a.Providers {
		next, err := p.Allocate(container, hint)
		if err != nil {
			return a.refused(container, err)
		}
		a.Providers[i] = next
	}
	return nil
}
