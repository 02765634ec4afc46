package podruntime

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podspec"
)

// ProbeResult is the latest result of a probe of a container.
type ProbeResult int

// The results. ProbeNone, the zero value, means that the probe has no result yet.
const (
	ProbeNone ProbeResult = iota
	ProbeUnknown
	ProbeSuccess
	ProbeFailure
)

// PlanInput is the complete input of [Plan].
type PlanInput struct {
	// Pod and Observed are only read. Observed is nil if the runtime has no sandbox and no container
	// of the pod.
	Pod      *v1.Pod
	Observed *observed.Pod
	// Liveness and Startup return the results of probes by container ID. If a function is nil,
	// the pod has no such probes.
	Liveness, Startup func(containerID string) ProbeResult
	// Resources enables resizes of running containers. If Resources is nil, no resize is planned.
	Resources *Resources
	// Waits is passed on as [podlife.Knowledge].Waits.
	Waits func(*v1.Container, *observed.Container) (until time.Time, why podlife.Kind)
	// Decide makes the decision that is put into an order. Nil means [podlife.Decide].
	Decide func(podlife.Knowledge) podlife.Decision
	// Unsure means that Pod may be older than the spec that its containers were made
	// from. A running container is then not restarted for a different definition.
	Unsure bool
}

// Kill is one container to be killed.
type Kill struct {
	ID, Name string
	// Message is the text of the event Killing.
	Message string
	Why     podlife.Kind
}

// Wait is one container that may not be started yet.
type Wait struct {
	Name  string
	Until time.Time
	Why   podlife.Kind
}

// Actions lists the next steps that change a pod to match its spec.
type Actions struct {
	// KillPod stops all containers and sandboxes of the pod. CreateSandbox then creates
	// a sandbox with the number Attempt. Without CreateSandbox, SandboxID is the
	// sandbox in use.
	KillPod, CreateSandbox bool
	SandboxID              string
	Attempt                uint32
	// Init, Regular and Ephemeral are the containers to start, in order. The numbers are indexes
	// into the spec's lists.
	Init, Regular, Ephemeral []int
	// Wait lists containers whose start has to wait.
	Wait []Wait
	// Kill lists containers to kill before any start.
	Kill []Kill
	// Reset lists the container instances to remove, in order, because the restart
	// rule of an ended container restarts all containers of the pod. No other action
	// is planned then.
	Reset []string
	// Update lists the in-place resizes of running containers.
	Update []Update
}

// Empty reports that there is no action. SandboxID, Attempt and Wait do not count as actions.
func (a *Actions) Empty() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Init)+len(a.Regular)+len(a.Ephemeral)+len(a.Kill)+len(a.Reset)+len(a.Update) == 0
}

// Plan decides what to do next: it puts a [podlife.Decision] into the order in which it is
// carried out. It is pure.
func Plan(in PlanInput) Actions {
	in.Observed = in.Observed.Settled()
	updates := map[string][]Update{} // by container ID
	k := in.knowledge(updates)
	decide := in.Decide
	if decide == nil {
		decide = podlife.Decide
	}
	d := decide(k)
	a := Actions{Attempt: d.Sandbox.Attempt, SandboxID: d.Sandbox.ID, Reset: d.Reset}
	if len(a.Reset) > 0 {
		return a
	}
	a.KillPod, a.CreateSandbox = d.Over || d.Sandbox.Make, d.Sandbox.Make
	if d.Sandbox.Lack == "" && !d.Over {
		// Ephemeral containers start once and never again, so that any instance, also
		// a dead one, will do. They do not wait for init.
		for i := range in.Pod.Spec.EphemeralContainers {
			c := v1.Container(in.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if in.Observed.Newest(c.Name) != nil {
				continue
			}
			if in.act(&a, &c, "", k.Begin(&c, nil), nil) {
				a.Ephemeral = append(a.Ephemeral, i)
			}
		}
	}
	// What cannot be ended keeps further instances from being made.
	for _, o := range d.Surplus {
		a.kill(o, podlife.Surplus, fmt.Sprintf("Container %s runs more than once", o.Name), false)
	}
	// Init containers end from the last to the first.
	for i := len(d.Init) - 1; i >= 0; i-- {
		if in.act(&a, &in.Pod.Spec.InitContainers[i], "Init container", d.Init[i], updates) {
			a.Init = append(a.Init, i)
		}
	}
	slices.Reverse(a.Init)
	for i := range d.Regular {
		if in.act(&a, &in.Pod.Spec.Containers[i], "Container", d.Regular[i], updates) {
			a.Regular = append(a.Regular, i)
		}
	}
	return a
}

// knowledge returns the input of [podlife.Decide]. Its function Resized also records resizes
// without a restart in updates, by container ID.
func (in *PlanInput) knowledge(updates map[string][]Update) podlife.Knowledge {
	return podlife.Knowledge{
		Pod: in.Pod, Runtime: in.Observed, Started: answers(in.Startup), Alive: answers(in.Liveness),
		Changed: in.changed, Waits: in.Waits,
		Resized: func(c *v1.Container, o *observed.Container) bool {
			restart, now := in.Resources.resize(c, o)
			updates[o.ID] = now
			return restart
		},
	}
}

// answers turns results of probes into answers: a success is Yes, a failure is No, and no result is
// Maybe.
func answers(results func(id string) ProbeResult) func(id string) observed.Answer {
	if results == nil {
		return nil
	}
	return func(id string) observed.Answer {
		switch results(id) {
		case ProbeSuccess:
			return observed.Yes
		case ProbeFailure:
			return observed.No
		default:
			return observed.Maybe
		}
	}
}

// act adds the decision about one container to the plan, and reports whether the container is to
// be started. kind is the beginning of the event's text, such as "Container".
func (in *PlanInput) act(a *Actions, c *v1.Container, kind string, do podlife.Act, updates map[string][]Update) (start bool) {
	o := in.Observed.Newest(c.Name)
	switch do.Do {
	case podlife.Keep:
		a.Update = append(a.Update, updates[o.ID]...)
	case podlife.Start:
		return true
	case podlife.Wait:
		a.Wait = append(a.Wait, Wait{Name: c.Name, Until: do.Until, Why: do.Why})
	case podlife.End:
		if do.Why == podlife.StateUnknown {
			a.kill(o, do.Why, fmt.Sprintf("%s is in %q state, try killing it before restart", kind, o.State), true)
		} else {
			a.kill(o, do.Why, fmt.Sprintf("%s %s %s", kind, c.Name, do.Why.Message()), do.Again)
		}
		return do.Again
	}
	return false
}

// kill adds the end of one container to the plan. The texts are those of the kubelet's events. If
// restart is set, the text says that the container will be restarted.
func (a *Actions) kill(o *observed.Container, why podlife.Kind, message string, restart bool) {
	if restart && why != podlife.StateUnknown {
		message += ", will be restarted"
	}
	a.Kill = append(a.Kill, Kill{ID: o.ID, Name: o.Name, Message: message, Why: why})
}

// changed reports whether the running container o was made from another definition than c, and so
// has to be replaced. A container without a hash was not made by a kubelet or by this package,
// and stays.
func (in *PlanInput) changed(c *v1.Container, o *observed.Container) bool {
	return !in.Unsure && o.Hash != "" && o.Hash != podspec.Hash(c)
}
