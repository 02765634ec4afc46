package podruntime

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
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
	Pod      *v1.Pod
	Observed *observed.Pod
	// Liveness and Startup tell the results of probes by container ID; nil
	// means that there are no probes.
	Liveness, Startup func(containerID string) ProbeResult
	// Resources lets running containers be resized; nil leaves them be.
	Resources *Resources
}

// KillReason says why a single container is killed; it decides on the grace
// period.
type KillReason string

// The reasons.
const (
	KillChanged  KillReason = "ContainerChanged"
	KillLiveness KillReason = "LivenessProbe"
	KillStartup  KillReason = "StartupProbe"
	KillUnknown  KillReason = "Unknown"
	KillHook     KillReason = "FailedPostStartHook"
	KillResize   KillReason = "ResizeRequiresRestart"
	KillSurplus  KillReason = "SurplusInstance"
	KillPodEnds  KillReason = ""
)

// Kill is one container to be killed.
type Kill struct {
	ID, Name string
	Message  string
	Reason   KillReason
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
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled", s.Attempt + 1, s.ID
	case s.State != observed.Running:
		return "pod sandbox is not ready", s.Attempt + 1, s.ID
	case s.HostNetwork != pod.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated", s.Attempt + 1, ""
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
	if a.Reset = resets(in.Pod, in.Observed); len(a.Reset) > 0 {
		return a
	}
	if lack != "" {
		planSandbox(in, &a)
		return a
	}
	for i := range in.Pod.Spec.EphemeralContainers {
		if in.Observed.Newest(in.Pod.Spec.EphemeralContainers[i].Name) == nil {
			a.Ephemeral = append(a.Ephemeral, i)
		}
	}
	planSurplus(in, &a)
	if !planInit(in, &a) || a.KillPod {
		return a
	}
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
		a.kill(o, KillSurplus, fmt.Sprintf("Container %s runs more than once", o.Name), false)
	}
}

// planSandbox plans for a pod without a usable sandbox.
func planSandbox(in PlanInput, a *Actions) {
	a.KillPod, a.CreateSandbox = true, true
	pod := in.Pod
	if pod.Spec.RestartPolicy == v1.RestartPolicyNever && a.Attempt != 0 && len(in.Observed.Containers) > 0 {
		a.CreateSandbox = false
		return
	}
	seen := false
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		o := in.Observed.Newest(c.Name)
		if o != nil && o.State != observed.Unknown {
			seen = true
		}
		if o != nil && o.State == observed.Exited && !podmeta.RestartsAfter(pod, c, o.ExitCode) {
			continue // a new sandbox is no new beginning
		}
		a.Regular = append(a.Regular, i)
	}
	if len(a.Regular) == 0 && (seen || len(pod.Spec.Containers) == 0) {
		a.CreateSandbox = false
		return
	}
	if len(pod.Spec.InitContainers) > 0 {
		a.Init, a.Regular = []int{0}, nil
	}
}

// planRegular plans for one regular container in a good sandbox, and reports
// whether it runs and stays.
func planRegular(in PlanInput, i int, a *Actions) (kept bool) {
	c := &in.Pod.Spec.Containers[i]
	o := in.Observed.Newest(c.Name)
	if o == nil || o.State != observed.Running {
		if shouldStart(in.Pod, c, o) {
			a.Regular = append(a.Regular, i)
			if o != nil && o.State == observed.Unknown {
				a.kill(o, KillUnknown, fmt.Sprintf("Container is in %q state, try killing it before restart", o.State), true)
			}
		}
		return false
	}
	restart := podmeta.RestartPolicy(in.Pod, c) != v1.RestartPolicyNever
	switch {
	case changed(c, o):
		a.kill(o, KillChanged, fmt.Sprintf("Container %s definition changed", c.Name), true)
		restart = true
	case in.liveness(o.ID) == ProbeFailure:
		a.kill(o, KillLiveness, fmt.Sprintf("Container %s failed liveness probe", c.Name), restart)
	case in.startup(o.ID) == ProbeFailure:
		a.kill(o, KillStartup, fmt.Sprintf("Container %s failed startup probe", c.Name), restart)
	case in.Resources.resize(c, o, a):
		a.kill(o, KillResize, fmt.Sprintf("Container %s resize requires restart", c.Name), true)
		restart = true
	default:
		return true
	}
	if restart {
		a.Regular = append(a.Regular, i)
	}
	return false
}

func (in *PlanInput) inNewestSandbox(o *observed.Container) bool {
	s := in.Observed.NewestSandbox()
	return s != nil && o.SandboxID != "" && o.SandboxID == s.ID
}

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

func (a *Actions) kill(o *observed.Container, reason KillReason, message string, restart bool) {
	if restart && reason != KillUnknown {
		message += ", will be restarted"
	}
	a.Kill = append(a.Kill, Kill{ID: o.ID, Name: o.Name, Message: message, Reason: reason})
}

// changed reports whether a container was made from another definition. One
// without a hash was not made by a kubelet or by this package; it is left be.
func changed(c *v1.Container, o *observed.Container) bool {
	return o.Hash != "" && o.Hash != podspec.Hash(c)
}

// shouldStart reports whether a container that does not run is to be started.
func shouldStart(pod *v1.Pod, c *v1.Container, o *observed.Container) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		return false
	case o == nil, o.State != observed.Exited:
		return true
	default:
		return podmeta.RestartsAfter(pod, c, o.ExitCode)
	}
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
	w := initWalk{in: in, a: a, initialized: initialized, prev: initialized}
	for i := len(pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if w.step(i) {
			return false
		}
	}
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
		if w.prev && sidecar {
			w.a.Init = append(w.a.Init, i)
		}
		return false
	}
	w.seen = true
	defer func() { w.prev = true }()
	if w.prev && !sidecar {
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
			w.again(i, o, KillResize, fmt.Sprintf("Init container %s resize requires restart", c.Name))
		}
	case observed.Exited:
		switch {
		case sidecar:
			w.a.Init = append(w.a.Init, i)
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
		if !sidecar && podmeta.RestartPolicy(pod, c) == v1.RestartPolicyNever {
			return w.endPod()
		}
		w.a.kill(o, KillUnknown, fmt.Sprintf("Init container is in %q state, try killing it before restart", o.State), true)
		w.a.Init = append(w.a.Init, i)
	}
	return false
}

func (w *initWalk) endPod() bool {
	w.a.KillPod, w.a.Init, w.a.Kill, w.a.Update = true, nil, nil, nil
	return true
}

// again has a running init container killed and started anew.
func (w *initWalk) again(i int, o *observed.Container, reason KillReason, message string) {
	w.a.kill(o, reason, message, true)
	w.a.Init = append(w.a.Init, i)
}

// runningSidecar lets the next init container start once this one has.
func (w *initWalk) runningSidecar(i int, c *v1.Container, o *observed.Container, last bool) {
	if c.StartupProbe != nil {
		switch w.in.startup(o.ID) {
		case ProbeNone, ProbeUnknown:
			return
		case ProbeFailure:
			w.again(i, o, KillStartup, fmt.Sprintf("Init container %s failed startup probe", c.Name))
			return
		}
	}
	if last {
		w.initialized = true
	} else if !w.prev {
		w.a.Init = append(w.a.Init, i+1)
	}
	switch {
	case changed(c, o):
		w.again(i, o, KillChanged, fmt.Sprintf("Init container %s definition changed", c.Name))
	case c.LivenessProbe != nil && w.in.liveness(o.ID) == ProbeFailure:
		w.again(i, o, KillLiveness, fmt.Sprintf("Init container %s failed liveness probe", c.Name))
	case w.in.Resources.resize(c, o, w.a):
		w.again(i, o, KillResize, fmt.Sprintf("Init container %s resize requires restart", c.Name))
	}
}
