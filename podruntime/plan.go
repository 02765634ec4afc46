package podruntime

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podspec"
)

// ProbeResult is what a probe has found out about a container so far.
type ProbeResult int

// The results. ProbeNone, the zero value, means that there is none yet.
const (
	ProbeNone ProbeResult = iota
	ProbeUnknown
	ProbeSuccess
	ProbeFailure
)

// PlanInput is all that a plan depends on.
type PlanInput struct {
	// Pod and Observed are read only. A nil Observed is a pod of which the
	// runtime has nothing.
	Pod      *v1.Pod
	Observed *observed.Pod
	// Liveness and Startup tell the results of probes by container ID; nil
	// means that there are no probes.
	Liveness, Startup func(containerID string) ProbeResult
	// Resources lets running containers be resized; nil leaves them be.
	Resources *Resources
	// Unsure means that Pod may be older than what its containers were made from: none
	// that runs is ended for having been made from another definition.
	Unsure bool
}

// Kill is one container to be killed.
type Kill struct {
	ID, Name string
	// Message is the text of the event Killing.
	Message string
	Why     podlife.Kind
}

// Actions is what brings a pod closer to its spec.
type Actions struct {
	// KillPod ends everything there is. With CreateSandbox a new sandbox
	// follows, numbered Attempt; otherwise SandboxID is the one in use.
	KillPod, CreateSandbox bool
	SandboxID              string
	Attempt                uint32
	// Containers to start, as indexes into the spec's lists, in order.
	Init, Regular, Ephemeral []int
	// Kill lists single containers to kill first.
	Kill []Kill
	// Reset lists the instances to remove, in that order, because one that
	// ended wants the whole pod to start over. Nothing else is planned then.
	Reset []string
	// Update lists what of running containers is to change in place.
	Update []Update
}

// Empty reports that there is nothing to do.
// A sandbox ID and an attempt alone are no actions.
func (a *Actions) Empty() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Init)+len(a.Regular)+len(a.Ephemeral)+len(a.Kill)+len(a.Reset)+len(a.Update) == 0
}

// SandboxNotReady is why the pod has no sandbox that its containers could be started
// in, "" if it has one: the message of the condition PodReadyToStartContainers, as the
// kubelet of Kubernetes 1.37 words it.
func SandboxNotReady(pod *v1.Pod, obs *observed.Pod) string {
	lack, _, _ := sandboxFor(pod, obs)
	return lack
}

// sandboxFor decides whether a new sandbox is needed, and why ("": it is not), its
// attempt, and the ID of the one that is, or was, in use.
func sandboxFor(pod *v1.Pod, obs *observed.Pod) (lack string, attempt uint32, id string) {
	s := obs.NewestSandbox()
	if s == nil {
		return "no pod sandbox exists", 0, ""
	}
	ready := 0
	for i := range obs.Sandboxes {
		if obs.Sandboxes[i].State == observed.Running {
			ready++
		}
	}
	switch {
	// Nobody knows in which of several the containers are right: all make way for
	// a new one.
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled", s.Attempt + 1, s.ID
	case s.State != observed.Running:
		return "pod sandbox is not ready", s.Attempt + 1, s.ID
	// The empty ID is the kubelet's: no event announces this change of sandbox.
	case s.HostNetwork != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated", s.Attempt + 1, ""
	// Runtimes that report no network at all are believed: their sandboxes would
	// be replaced for ever.
	case !s.HostNetwork && s.HasNetwork && len(s.IPs) == 0:
		return "pod sandbox has no IP address", s.Attempt + 1, s.ID
	default:
		return "", s.Attempt, s.ID
	}
}

// Plan decides what to do next. It is pure.
func Plan(in PlanInput) Actions {
	in.Observed = in.Observed.Settled()
	var a Actions
	var lack string
	lack, a.Attempt, a.SandboxID = sandboxFor(in.Pod, in.Observed)
	// First of all: while a pod starts over, dead containers and sandboxes prove
	// nothing.
	if a.Reset = resets(in.Pod, in.Observed); len(a.Reset) > 0 {
		return a
	}
	if lack != "" {
		planSandbox(in, &a)
		return a
	}
	// Ephemeral containers start once and never again, so that any instance, also
	// a dead one, will do. They do not wait for init.
	for i := range in.Pod.Spec.EphemeralContainers {
		if in.Observed.Newest(in.Pod.Spec.EphemeralContainers[i].Name) == nil {
			a.Ephemeral = append(a.Ephemeral, i)
		}
	}
	planSurplus(in, &a)
	if !planInit(in, &a) || a.KillPod {
		return a
	}
	// Only pods whose init containers are done come here.
	kept := 0
	for i := range in.Pod.Spec.Containers {
		if planRegular(in, i, &a) {
			kept++
		}
	}
	if kept == 0 && len(a.Regular) == 0 {
		a.KillPod, a.Init, a.Update = true, nil, nil // so that sidecars do not keep the pod alive
	}
	return a
}

// planSurplus ends what runs beside a newer instance of the same container.
// What cannot be ended keeps further instances from being made.
func planSurplus(in PlanInput, a *Actions) {
	for _, o := range in.Observed.Surplus() {
		a.kill(o, podlife.Surplus, fmt.Sprintf("Container %s runs more than once", o.Name), false)
	}
}

// planSandbox plans for a pod without a usable sandbox.
func planSandbox(in PlanInput, a *Actions) {
	a.KillPod, a.CreateSandbox = true, true
	pod := in.Pod
	// A second run is what the policy forbids.
	if pod.Spec.RestartPolicy == v1.RestartPolicyNever && a.Attempt != 0 && hasRun(pod, in.Observed) {
		a.CreateSandbox = false
		return
	}
	// seen reports that the pod has run: then nothing to start means that it is
	// over. A container of unknown state proves nothing.
	seen := false
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		o := in.Observed.Newest(c.Name)
		if o != nil && o.State != observed.Unknown {
			seen = true
		}
		if o != nil && o.State == observed.Exited && (rulesWait(c, o) || !podmeta.RestartsAfter(pod, c, o.ExitCode)) {
			continue // a new sandbox is no new beginning
		}
		a.Regular = append(a.Regular, i)
	}
	if len(a.Regular) == 0 && (seen || len(pod.Spec.Containers) == 0) {
		a.CreateSandbox = false
		return
	}
	if len(pod.Spec.InitContainers) > 0 {
		// The others follow in later rounds, each after the one before it has ended
		// well.
		a.Init, a.Regular = []int{0}, nil
	}
}

// hasRun reports whether a regular container of a pod has started, or an init container is not known
// to have succeeded. A pod that lost its sandbox between the two, as in a reboot, may start over, since init
// containers have to be idempotent. The kubelet leaves such a pod Pending for ever.
func hasRun(pod *v1.Pod, obs *observed.Pod) bool {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		o := obs.Newest(c.Name)
		if !podmeta.IsSidecar(c) && o != nil && o.State != observed.Created && (o.State != observed.Exited || o.ExitCode != 0) {
			return true
		}
	}
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		o := obs.Newest(c.Name)
		return o != nil && o.State != observed.Created
	})
}

// planRegular plans for one regular container in a good sandbox, and reports
// whether it runs and stays.
func planRegular(in PlanInput, i int, a *Actions) (kept bool) {
	c := &in.Pod.Spec.Containers[i]
	o := in.Observed.Newest(c.Name)
	if o == nil || o.State != observed.Running {
		if shouldStart(in.Pod, c, o) {
			a.Regular = append(a.Regular, i)
			// It may run after all, and two instances must not.
			if o != nil && o.State == observed.Unknown {
				a.kill(o, podlife.StateUnknown, fmt.Sprintf("Container is in %q state, try killing it before restart", o.State), true)
			}
		}
		return false
	}
	// Exit-code rules judge how a container ended by itself; after a kill the
	// policy alone decides, as with the kubelet.
	restart := podmeta.RestartPolicy(in.Pod, c) != v1.RestartPolicyNever
	switch {
	// The edit is a wish for the new definition, whatever the policy says about
	// ends.
	case in.changed(c, o):
		a.kill(o, podlife.Changed, fmt.Sprintf("Container %s definition changed", c.Name), true)
		restart = true
	case in.liveness(o.ID) == ProbeFailure:
		a.kill(o, podlife.LivenessFailed, fmt.Sprintf("Container %s failed liveness probe", c.Name), restart)
	case in.startup(o.ID) == ProbeFailure:
		a.kill(o, podlife.StartupFailed, fmt.Sprintf("Container %s failed startup probe", c.Name), restart)
	case in.Resources.resize(c, o, a):
		a.kill(o, podlife.Resized, fmt.Sprintf("Container %s resize requires restart", c.Name), true)
		restart = true
	default:
		return true
	}
	if restart {
		a.Regular = append(a.Regular, i)
	}
	return false
}

// inNewestSandbox reports whether a container is known to be of the sandbox in
// use.
func (in *PlanInput) inNewestSandbox(o *observed.Container) bool {
	s := in.Observed.NewestSandbox()
	return s != nil && o.SandboxID != "" && o.SandboxID == s.ID
}

// liveness and startup are the results of a container's probes so far.
func (in *PlanInput) liveness(id string) ProbeResult {
	if in.Liveness == nil {
		return ProbeNone
	}
	return in.Liveness(id)
}

func (in *PlanInput) startup(id string) ProbeResult {
	if in.Startup == nil {
		return ProbeNone
	}
	return in.Startup(id)
}

// kill plans the end of one container. The words are the kubelet's events; the
// message for an unknown state mentions the restart by itself.
func (a *Actions) kill(o *observed.Container, why podlife.Kind, message string, restart bool) {
	if restart && why != podlife.StateUnknown {
		message += ", will be restarted"
	}
	a.Kill = append(a.Kill, Kill{ID: o.ID, Name: o.Name, Message: message, Why: why})
}

// changed reports whether a container is to give way to one of another definition. One
// without a hash was not made by a kubelet or by this package; it is left be.
func (in *PlanInput) changed(c *v1.Container, o *observed.Container) bool {
	return !in.Unsure && o.Hash != "" && o.Hash != podspec.Hash(c)
}

// shouldStart reports whether a container that does not run is to be started.
func shouldStart(pod *v1.Pod, c *v1.Container, o *observed.Container) bool {
	switch {
	// A pod that is being deleted starts nothing, whoever asks for the sync.
	case pod.DeletionTimestamp != nil:
		return false
	// Created and unknown are no ends: no restart policy applies to them.
	case o == nil, o.State != observed.Exited:
		return true
	case rulesWait(c, o):
		return false
	default:
		return podmeta.RestartsAfter(pod, c, o.ExitCode)
	}
}

// rulesWait reports whether a container has restart rules and ended with a code that
// the runtime has not reported yet: [UnknownExit] would match a rule with NotIn. The
// next observation has the code.
func rulesWait(c *v1.Container, o *observed.Container) bool {
	return o.ExitCode == UnknownExit && len(c.RestartPolicyRules) > 0
}

// planInit plans for the init containers, from the last one to the first, and
// reports whether all are done, so that regular containers may start.
func planInit(in PlanInput, a *Actions) (initialized bool) {
	pod := in.Pod
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	// That a regular container was made proves that all were done. One that
	// has exited proves it for its own sandbox: it may be of one before a
	// reboot.
	for i := range pod.Spec.Containers {
		o := in.Observed.Newest(pod.Spec.Containers[i].Name)
		if o != nil && (o.State == observed.Created || o.State == observed.Running || o.State == observed.Exited && in.inNewestSandbox(o)) {
			initialized = true
			break
		}
	}
	// From last to first: an instance of a later container proves that the
	// earlier ones were done, also where garbage collection has removed them.
	w := initWalk{in: in, a: a, initialized: initialized, prev: initialized}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if w.step(i) {
			return false
		}
	}
	// A new pod, or one of which nothing is left.
	if !w.seen && !w.initialized {
		a.Init = append(a.Init, 0)
	}
	slices.Reverse(a.Init)
	return w.initialized
}

// initWalk is the state of one walk over the init containers.
type initWalk struct {
	in          PlanInput
	a           *Actions
	initialized bool
	prev        bool // a later one was started before, so this one was done
	seen        bool // some init container has a status
}

// step looks at one init container. stop means that the pod is to be killed.
func (w *initWalk) step(i int) (stop bool) {
	pod := w.in.Pod
	c := &pod.Spec.InitContainers[i]
	sidecar := podmeta.IsSidecar(c)
	o := w.in.Observed.Newest(c.Name)
	if o == nil {
		// Sidecars run for as long as the pod does; a regular init container
		// without an instance was done and removed, or is not due yet.
		if w.prev && sidecar {
			w.a.Init = append(w.a.Init, i)
		}
		return false
	}
	w.seen = true
	// Deferred: this step itself still has to see what was after it.
	defer func() { w.prev = true }()
	if w.prev && !sidecar {
		// A later container was started, so this one was done once, and once is
		// enough.
		return false
	}
	last := i == len(pod.Spec.InitContainers)-1
	switch o.State {
	case observed.Created:
		w.a.Init = append(w.a.Init, i)
	case observed.Running:
		if sidecar {
			w.runningSidecar(i, c, o, last)
		} else if w.in.Resources.resize(c, o, w.a) {
			w.again(i, o, podlife.Resized, fmt.Sprintf("Init container %s resize requires restart", c.Name))
		}
	case observed.Exited:
		switch {
		case sidecar:
			w.a.Init = append(w.a.Init, i)
		case rulesWait(c, o): // neither over nor due
		// A process that the kernel killed for memory may leave an exit code 0; by
		// policy and rules it is a failure.
		case o.ExitCode != 0 || o.Reason == "OOMKilled":
			if !podmeta.RestartsAfter(pod, c, max(o.ExitCode, 1)) {
				return w.endPod()
			}
			w.a.Init = append(w.a.Init, i)
		case last:
			w.initialized = true
		default:
			w.a.Init = append(w.a.Init, i+1)
		}
	default:
		// It cannot be known that it succeeded, and it may not run twice.
		if !sidecar && podmeta.RestartPolicy(pod, c) == v1.RestartPolicyNever {
			return w.endPod()
		}
		w.a.kill(o, podlife.StateUnknown, fmt.Sprintf("Init container is in %q state, try killing it before restart", o.State), true)
		w.a.Init = append(w.a.Init, i)
	}
	return false
}

// endPod plans the pod's end in place of all that was planned so far. It
// returns true, the result of a step that ends the walk.
func (w *initWalk) endPod() bool {
	w.a.KillPod, w.a.Init, w.a.Kill, w.a.Update = true, nil, nil, nil
	return true
}

// again has a running init container killed and started anew.
func (w *initWalk) again(i int, o *observed.Container, why podlife.Kind, message string) {
	w.a.kill(o, why, message, true)
	w.a.Init = append(w.a.Init, i)
}

// runningSidecar lets the next init container start once this one has.
func (w *initWalk) runningSidecar(i int, c *v1.Container, o *observed.Container, last bool) {
	if c.StartupProbe != nil {
		switch w.in.startup(o.ID) {
		// Started is not known yet: nothing follows, and no other probe counts
		// before.
		case ProbeNone, ProbeUnknown:
			return
		case ProbeFailure:
			w.again(i, o, podlife.StartupFailed, fmt.Sprintf("Init container %s failed startup probe", c.Name))
			return
		}
	}
	if last {
		// To have started is enough for what comes after; readiness does not count
		// (KEP-753).
		w.initialized = true
	} else if !w.prev {
		w.a.Init = append(w.a.Init, i+1)
	}
	switch {
	case w.in.changed(c, o):
		w.again(i, o, podlife.Changed, fmt.Sprintf("Init container %s definition changed", c.Name))
	case c.LivenessProbe != nil && w.in.liveness(o.ID) == ProbeFailure:
		w.again(i, o, podlife.LivenessFailed, fmt.Sprintf("Init container %s failed liveness probe", c.Name))
	case w.in.Resources.resize(c, o, w.a):
		w.again(i, o, podlife.Resized, fmt.Sprintf("Init container %s resize requires restart", c.Name))
	}
}
