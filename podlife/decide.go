package podlife

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Knowledge is all that the decision about a pod's containers depends on. Decide changes nothing in
// it.
type Knowledge struct {
	Pod *v1.Pod
	// Runtime is the pod's state in the runtime. It is nil if the runtime has no sandbox and no
	// container of the pod.
	Runtime *observed.Pod
	// Started and Alive are the results of the startup and liveness probes of a container, by its
	// ID. If a function is nil, there are no results yet, and every answer is Maybe.
	Started, Alive func(id string) observed.Answer
	// Changed reports whether a running container has to be replaced because its definition
	// changed. Resized reports whether it has to be replaced because of a resource that cannot be
	// changed while it runs. If a function is nil, its answer is no.
	Changed, Resized func(*v1.Container, *observed.Container) bool
	// Waits returns the time until which a container must not be started, and the reason. If the
	// time is zero, the container may be started now. The second argument is the container's
	// newest instance, or nil if there is none. If Waits is nil, no container waits.
	Waits func(*v1.Container, *observed.Container) (until time.Time, why Kind)
}

// Do says what happens to a container.
type Do uint8

const (
	// NotYet means that nothing is done now: another container comes first, or the exit code of this
	// one is not known yet.
	NotYet Do = iota
	// Keep means that the container runs and stays.
	Keep
	// Start means that an instance is to be made and started.
	Start
	// Wait means that an instance is to be made and started, but not yet.
	Wait
	// End means that the container runs or may run, and is to end.
	End
	// Never means that no instance is made any more.
	Never
)

// Act is the decision about one container.
type Act struct {
	Do Do
	// Why is the cause of an End or a Wait.
	Why Kind
	// Until is when a Wait is over.
	Until time.Time
	// Again means, with End, that another instance of the container is started after the end.
	Again bool
}

// Comes reports whether another instance of the container is to be made, now or later.
func (a Act) Comes() bool {
	return a.Do == Start || a.Do == Wait || a.Do == NotYet || a.Do == End && a.Again
}

// Sandbox is the decision about a pod's sandbox.
type Sandbox struct {
	// Lack is why the pod has no usable sandbox, or "" if the pod has one. The text is the
	// message of the condition PodReadyToStartContainers.
	Lack string
	// Make means that another sandbox is to be made, once the previous one has been ended.
	Make bool
	// Attempt is the number of the sandbox in use, or of the one to be made.
	Attempt uint32
	// ID is the ID of the sandbox in use. If none is in use, it is the ID of the previous
	// sandbox.
	ID string
}

// Decision says what happens to a pod's sandbox and containers.
type Decision struct {
	// Over means that the pod has ended: no container is started any more, and containers that still
	// run are ended.
	Over bool
	// Reset lists the instances to be removed, in this order, for a restart of all
	// containers (KEP-5532). Nothing else is decided then.
	Reset   []string
	Sandbox Sandbox
	// Init and Regular are the decisions about the containers of the spec, by index.
	Init, Regular []Act
	// Surplus are instances that run or may run beside a newer instance of the same container.
	Surplus []*observed.Container
}

// Decide decides what happens to a pod's sandbox and containers, by the first of these rules
// that applies:
//
//  1. a container ended in a way that has all of them start over: Reset;
//  2. the pod has no usable sandbox: another one is made, unless the restart policy is
//     Never and the pod has run in one, or nothing would be started in it: Over;
//  3. instances beside a newer one end;
//  4. init containers, from the last to the first: an instance of a later one proves that
//     those before it are done. One that failed for good ends the pod;
//  5. regular containers, once the init containers are done: each is kept, started,
//     ended, or never started again;
//  6. no regular container is left that runs, or comes: Over.
//
// A pod that is being deleted starts nothing.
func Decide(k Knowledge) Decision {
	k.Runtime = k.Runtime.Settled()
	d := Decision{
		Sandbox: SandboxOf(k.Pod, k.Runtime),
		Init:    make([]Act, len(k.Pod.Spec.InitContainers)), Regular: make([]Act, len(k.Pod.Spec.Containers)),
	}
	// While a pod starts over, dead containers and sandboxes prove nothing.
	if d.Reset = resets(k.Pod, k.Runtime); len(d.Reset) > 0 {
		return d
	}
	for i := range d.Regular {
		if k.starts(&k.Pod.Spec.Containers[i]) == observed.No {
			d.Regular[i] = Act{Do: Never}
		}
	}
	if d.Sandbox.Lack != "" {
		k.withoutSandbox(&d)
		return d
	}
	d.Surplus = k.Runtime.Surplus()
	if k.initialized(&d) {
		for i := range d.Regular {
			d.Regular[i] = k.regular(&k.Pod.Spec.Containers[i])
		}
		d.Over = !slices.ContainsFunc(d.Regular, Act.lasts) // sidecars do not keep a pod alive
	}
	if k.Pod.DeletionTimestamp != nil {
		k.startNothing(&d)
	}
	if d.Over { // what still runs goes with the pod, unless it has a cause of its own
		for _, list := range [][]Act{d.Init, d.Regular} {
			for i := range list {
				if a := &list[i]; a.Do == End {
					a.Again = false
				} else {
					*a = Act{Do: Never}
				}
			}
		}
	}
	return d
}

// lasts reports that the container stays or comes again, so that its pod has not ended.
func (a Act) lasts() bool { return a.Do == Keep || a.Comes() }

// startNothing takes every start out of the decision d, which is about a pod that is being deleted.
func (k *Knowledge) startNothing(d *Decision) {
	lasts := false
	for _, list := range [][]Act{d.Init, d.Regular} {
		for i := range list {
			switch a := &list[i]; {
			case a.Do == End && (a.Why == Changed || a.Why == Resized):
				*a = Act{Do: Keep} // it would only be ended for the next one
			case a.Do == End:
				a.Again = false
			case a.Comes():
				*a = Act{Do: Never}
			}
		}
	}
	for i := range d.Init {
		lasts = lasts || d.Init[i].lasts() && !podmeta.IsSidecar(&k.Pod.Spec.InitContainers[i])
	}
	d.Over = !lasts && !slices.ContainsFunc(d.Regular, Act.lasts)
}

// over changes the decision to one that ends the pod.
func (d *Decision) over() {
	d.Over, d.Surplus = true, nil
	for _, list := range [][]Act{d.Init, d.Regular} {
		for i := range list {
			list[i] = Act{Do: Never}
		}
	}
}

// Begin decides when a container that is to run is started: now, or when its wait is over. o is
// the container's last instance, or nil if it has none.
func (k *Knowledge) Begin(c *v1.Container, o *observed.Container) Act {
	if k.Waits != nil {
		if until, why := k.Waits(c, o); !until.IsZero() {
			return Act{Do: Wait, Why: why, Until: until}
		}
	}
	return Act{Do: Start}
}

// starts reports whether a container that does not run is to be started when the order of the spec
// allows it. It is Maybe until the exit code of the last instance is known.
func (k *Knowledge) starts(c *v1.Container) observed.Answer {
	return Starts(k.Pod, c, k.Runtime.Newest(c.Name))
}

// Starts reports whether a container is started again after its newest instance o, or for the first
// time if o is nil. The answer is Maybe if o exited, a restart rule may depend on the exit code,
// and the runtime has not reported the code yet. Starts does not consider whether the pod has
// ended: see [Decide].
func Starts(pod *v1.Pod, c *v1.Container, o *observed.Container) observed.Answer {
	switch {
	// A pod that is being deleted starts nothing, whoever asks.
	case pod.DeletionTimestamp != nil, o != nil && o.State == observed.Running:
		return observed.No
	// Created and unknown are no ends: no restart policy applies to them.
	case o == nil, o.State != observed.Exited:
		return observed.Yes
	case exitUnknown(c, o):
		return observed.Maybe
	case podmeta.RestartsAfter(pod, c, o.Code()):
		return observed.Yes
	default:
		return observed.No
	}
}

// exitUnknown reports whether a container has restart rules and exited with a code that is not
// known yet. An unknown code would match a rule with NotIn.
func exitUnknown(c *v1.Container, o *observed.Container) bool {
	return o.ExitCode == nil && len(c.RestartPolicyRules) > 0
}

// SandboxOf returns the part of the decision about a pod's sandbox that does not depend on the
// containers: all fields except Make.
func SandboxOf(pod *v1.Pod, obs *observed.Pod) Sandbox {
	s := obs.NewestSandbox()
	if s == nil {
		return Sandbox{Lack: "no pod sandbox exists"}
	}
	ready := 0
	for i := range obs.Sandboxes {
		if obs.Sandboxes[i].State == observed.Running {
			ready++
		}
	}
	next := Sandbox{Attempt: s.Attempt + 1, ID: s.ID}
	switch {
	// Nobody knows in which of several the containers are right: all make way for
	// a new one.
	case ready > 1:
		next.Lack = "multiple pod sandboxes are ready and need to be reconciled"
	case s.State != observed.Running:
		next.Lack = "pod sandbox is not ready"
	// The empty ID is the kubelet's: no event announces this change of sandbox.
	case s.HostNetwork != pod.Spec.HostNetwork:
		next.Lack, next.ID = "network namespace mode changed and sandbox needs to be recreated", ""
	// Runtimes that report no network at all are believed: their sandboxes would
	// be replaced for ever.
	case !s.HostNetwork && s.HasNetwork && len(s.IPs) == 0:
		next.Lack = "pod sandbox has no IP address"
	default:
		return Sandbox{Attempt: s.Attempt, ID: s.ID}
	}
	return next
}

// withoutSandbox decides about a pod without a usable sandbox. A new sandbox does not restart
// containers that have ended for good.
func (k *Knowledge) withoutSandbox(d *Decision) {
	// A second run is what the policy forbids.
	if k.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && d.Sandbox.Attempt != 0 && k.hasRun() {
		d.over()
		return
	}
	// ran reports that a container was made: then nothing to start means that the pod is
	// over. One of unknown state proves nothing.
	ran, starts, waits := false, false, false
	for i := range d.Regular {
		c := &k.Pod.Spec.Containers[i]
		o := k.Runtime.Newest(c.Name)
		ran = ran || o != nil && o.State != observed.Unknown
		// Whatever runs outside of a usable sandbox is ended with the one before.
		answer := k.starts(c)
		if o != nil && o.State == observed.Running && k.Pod.DeletionTimestamp == nil {
			answer = observed.Yes
		}
		switch answer {
		case observed.Yes:
			d.Regular[i], starts = k.Begin(c, o), true
		case observed.Maybe:
			d.Regular[i], waits = Act{}, true
		default:
			d.Regular[i] = Act{Do: Never}
		}
	}
	switch {
	case !starts && waits:
		return // the next look shows how it ended
	case !starts && (ran || len(d.Regular) == 0 || k.Pod.DeletionTimestamp != nil):
		d.over()
		return
	}
	d.Sandbox.Make = true
	if len(d.Init) > 0 {
		d.Init[0] = k.Begin(&k.Pod.Spec.InitContainers[0], nil) // those of the sandbox before are removed
		for i := range d.Regular {                              // they follow when the init containers are done
			if d.Regular[i].Comes() {
				d.Regular[i] = Act{}
			}
		}
	}
}

// hasRun reports whether a regular container has started, or an init container is not known to have
// succeeded. A pod that lost its sandbox after its init containers had succeeded and before a
// regular container started, as in a reboot, may start over, since init containers have to be
// idempotent. The kubelet leaves such a pod Pending for ever.
func (k *Knowledge) hasRun() bool {
	for i := range k.Pod.Spec.InitContainers {
		c := &k.Pod.Spec.InitContainers[i]
		o := k.Runtime.Newest(c.Name)
		if !podmeta.IsSidecar(c) && o != nil && o.State != observed.Created && (o.State != observed.Exited || o.Code() != 0) {
			return true
		}
	}
	return slices.ContainsFunc(k.Pod.Spec.Containers, func(c v1.Container) bool {
		o := k.Runtime.Newest(c.Name)
		return o != nil && o.State != observed.Created
	})
}

// regular decides about a regular container in a usable sandbox.
func (k *Knowledge) regular(c *v1.Container) Act {
	o := k.Runtime.Newest(c.Name)
	if o == nil || o.State != observed.Running {
		switch k.starts(c) {
		case observed.No:
			return Act{Do: Never}
		case observed.Maybe:
			return Act{}
		}
		// It may run after all, and two instances must not.
		if o != nil && o.State == observed.Unknown {
			return Act{Do: End, Why: StateUnknown, Again: true}
		}
		return k.Begin(c, o)
	}
	// Exit-code rules judge how a container ended by itself; after a kill the
	// policy alone decides, as with the kubelet.
	again := podmeta.RestartPolicy(k.Pod, c) != v1.RestartPolicyNever
	switch {
	// The edit is a wish for the new definition, whatever the policy says about
	// ends.
	case k.changed(c, o):
		return Act{Do: End, Why: Changed, Again: true}
	case k.alive(o) == observed.No:
		return Act{Do: End, Why: LivenessFailed, Again: again}
	case k.started(o) == observed.No:
		return Act{Do: End, Why: StartupFailed, Again: again}
	case k.resized(c, o):
		return Act{Do: End, Why: Resized, Again: true}
	default:
		return Act{Do: Keep}
	}
}

// initialized decides about the init containers. done reports that regular containers may start.
func (k *Knowledge) initialized(d *Decision) (done bool) {
	list := k.Pod.Spec.InitContainers
	if len(list) == 0 {
		return true
	}
	done = k.regularMade()
	// later: one that comes after was started before, so that this one was done once.
	later, seen := done, false
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		o, sidecar := k.Runtime.Newest(c.Name), podmeta.IsSidecar(c)
		last := i == len(list)-1
		switch {
		// Sidecars run for as long as the pod does.
		case o == nil && later && sidecar:
			d.Init[i] = k.Begin(c, nil)
		case o == nil && later, o != nil && later && !sidecar: // once is enough
			d.Init[i] = Act{Do: Never}
		case o == nil: // not due yet, unless the one before it says so
		case sidecar && o.State == observed.Running:
			var started bool
			d.Init[i], started = k.runningSidecar(c, o)
			done = done || started && last
			if started && !last && !later {
				d.Init[i+1] = k.Begin(&list[i+1], nil)
			}
		case sidecar && o.State != observed.Unknown, o.State == observed.Created:
			d.Init[i] = k.Begin(c, o)
		case o.State == observed.Running && k.resized(c, o):
			d.Init[i] = Act{Do: End, Why: Resized, Again: true}
		case o.State == observed.Running:
			d.Init[i] = Act{Do: Keep}
		case o.State == observed.Exited && exitUnknown(c, o):
			d.Init[i] = Act{} // neither over nor due
		// A process that the kernel killed for memory may leave an exit code 0; by
		// policy and rules it is a failure.
		case o.State == observed.Exited && (o.Code() != 0 || o.Reason == "OOMKilled"):
			if !podmeta.RestartsAfter(k.Pod, c, max(o.Code(), 1)) {
				d.over()
				return false
			}
			d.Init[i] = k.Begin(c, o)
		case o.State == observed.Exited:
			d.Init[i] = Act{Do: Never}
			if done = done || last; !last {
				d.Init[i+1] = k.Begin(&list[i+1], nil)
			}
		// It cannot be known that it succeeded, and it may not run twice.
		case !sidecar && podmeta.RestartPolicy(k.Pod, c) == v1.RestartPolicyNever:
			d.over()
			return false
		default:
			d.Init[i] = Act{Do: End, Why: StateUnknown, Again: true}
		}
		later, seen = later || o != nil, seen || o != nil
	}
	// A new pod, or one of which nothing is left.
	if !seen && !done {
		d.Init[0] = k.Begin(&list[0], nil)
	}
	return done
}

// regularMade reports whether an instance of a regular container proves that all init containers
// were done. An instance that has exited proves it only if it was in the current sandbox: it may be
// from before a reboot.
func (k *Knowledge) regularMade() bool {
	s := k.Runtime.NewestSandbox()
	return slices.ContainsFunc(k.Pod.Spec.Containers, func(c v1.Container) bool {
		o := k.Runtime.Newest(c.Name)
		return o != nil && (o.State == observed.Created || o.State == observed.Running ||
			o.State == observed.Exited && s != nil && o.SandboxID != "" && o.SandboxID == s.ID)
	})
}

// runningSidecar decides about a sidecar that runs. started reports that the sidecar has started,
// so that the next container may start; readiness does not count (KEP-753).
func (k *Knowledge) runningSidecar(c *v1.Container, o *observed.Container) (a Act, started bool) {
	if c.StartupProbe != nil {
		switch k.started(o) {
		// No other probe counts before.
		case observed.Maybe:
			return Act{Do: Keep}, false
		case observed.No:
			return Act{Do: End, Why: StartupFailed, Again: true}, false
		}
	}
	switch {
	case k.changed(c, o):
		a = Act{Do: End, Why: Changed, Again: true}
	case c.LivenessProbe != nil && k.alive(o) == observed.No:
		a = Act{Do: End, Why: LivenessFailed, Again: true}
	case k.resized(c, o):
		a = Act{Do: End, Why: Resized, Again: true}
	default:
		a = Act{Do: Keep}
	}
	return a, true
}

func (k *Knowledge) started(o *observed.Container) observed.Answer { return ask(k.Started, o.ID) }
func (k *Knowledge) alive(o *observed.Container) observed.Answer   { return ask(k.Alive, o.ID) }

func ask(results func(string) observed.Answer, id string) observed.Answer {
	if results == nil {
		return observed.Maybe
	}
	return results(id)
}

func (k *Knowledge) changed(c *v1.Container, o *observed.Container) bool {
	return k.Changed != nil && k.Changed(c, o)
}

func (k *Knowledge) resized(c *v1.Container, o *observed.Container) bool {
	return k.Resized != nil && k.Resized(c, o)
}
