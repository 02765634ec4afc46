package topology

import (
	"fmt"
	"slices"

	"github.com/nodewright/nodewright/numa"
)

// Provider is the state of one resource manager as a value, as far as one pod can
// take from it. A method must not wait for other pods; it may ask a plugin, as
// devices do.
type Provider interface {
	// Hints says from which nodes the requests of a container, or of the pod
	// as [WholePod], can be served: an entry for each resource that matters. A
	// provider with nothing to say returns none.
	Hints(container int) []numa.Hints
	// Allocate returns the provider with the resources of a container taken,
	// near the nodes of the hint if it names any. The receiver does not change.
	// If the error has a method Reason() string, that is the reason the pod is
	// rejected for.
	Allocate(container int, hint numa.Hint) (Provider, error)
}

// WholePod stands in place of a container's index for the pod as a whole. Providers
// get it in PodScope only.
const WholePod = -1

// Scope describes what is placed together.
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
	// PodLevel has the resources of a pod that names some for itself
	// (numa.Pod.Resources) allocated at once, as [WholePod], in PodScope. In
	// the kubelet this is the feature gate PodLevelResourceManagers.
	PodLevel bool
}

// Manager decides on pods. It has no state: what is taken is in the providers.
// It may be used from many goroutines.
type Manager struct {
	cfg Config
}

// New checks cfg. The error names a scope that is not known.
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

// Decision is where a pod goes, and why.
type Decision struct {
	// Hints are those that each container was placed by, in the order of
	// numa.Pod.Containers. Nil if the pod is rejected.
	Hints []numa.Hint
	// Providers have all that the pod takes taken, in the order in which they
	// were given. If the pod is rejected they are those that were given.
	Providers []Provider
	// Steps are the merges that were made, in their order. That of a rejected
	// container is the last. Under None there are none.
	Steps []Step
}

// Step is one merge: what the resources said, and what came of it.
type Step struct {
	Container int          // index, or WholePod
	Hints     []numa.Hints // of all providers, in their order
	Hint      numa.Hint
	Admitted  bool
}

// Admit decides whether a pod can be placed, and how. It changes nothing: to
// make the decision true, go on with its Providers; for a dry run, forget it.
// Providers are asked, and allocate, in the order given; the kubelet's is
// devices, CPUs, memory.
//
// The error is a [*Rejection], or nil. A rejected pod has taken nothing. It blocks
// for as long as providers do. Metrics are left to the caller.
func (m *Manager) Admit(pod numa.Pod, providers []Provider) (Decision, error) {
	a := admission{cfg: m.cfg, pod: pod}
	a.Hints = make([]numa.Hint, len(pod.Containers))
	a.Providers = slices.Clone(providers)
	if err := a.admit(); err != nil {
		return Decision{Providers: slices.Clone(providers), Steps: a.Steps}, err
	}
	return a.Decision, nil
}

// admission is a decision being made.
type admission struct {
	Decision
	cfg Config
	pod numa.Pod
}

// admit places and allocates one container after the other, so that each sees what
// those before it took; in PodScope, all at once. Policy none has no scope, as in
// the kubelet.
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

// together finds one hint for the pod, then allocates its containers by it.
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

// podLevel reports whether the pod gets the resources that it names as a whole.
func (a *admission) podLevel() bool { return a.cfg.PodLevel && a.pod.Resources != nil }

// place finds the hint of a container.
func (a *admission) place(container int) error {
	if _, none := a.cfg.Policy.(None); none {
		return nil
	}
	hint, err := a.merge(container)
	a.Hints[container] = hint
	return err
}

// merge asks all providers about a container or the pod, and the policy about their
// answers. Each merge is a Step, admitted or not.
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

// allocate has each provider take what a container asks for. An error leaves some
// providers replaced; Admit drops them all.
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
