package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// owned are the conditions that a node agent writes. All others are copied from the pod's status.
// Other programs write DisruptionTarget as well: the later of two is kept, or the node's if both
// are equally old.
var owned = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodResizeInProgress,
	v1.PodResizePending, v1.PodReadyToStartContainers, v1.AllContainersRestarting,
}

// Conditions computes the conditions for the statuses in st. A condition
// whose status has not changed keeps its transition time.
func Conditions(in Input, st *v1.PodStatus) []v1.PodCondition {
	in.Now = in.now()
	// Own conditions are computed each time. prev has what is kept: transition times,
	// and whether the pod was initialized.
	prev := in.previous()
	out := foreign(in.Pod.Status.Conditions, prev.Conditions)
	containers := containersReady(in.Pod, st)
	// Readiness gates are conditions of other writers, which out contains already.
	gated := ready(in.Pod, containers, out)
	out = append(out, resizes(&in, prev, st)...)
	for _, c := range [...]v1.PodCondition{
		restartingAll(&in, st),
		readyToStart(&in),
		initialized(in.Pod, st, prev),
		gated,
		containers,
		{Type: v1.PodScheduled, Status: v1.ConditionTrue},
	} {
		if c.Type == "" {
			// A condition that does not apply to this pod.
			continue
		}
		c.ObservedGeneration = in.Pod.Generation
		c.LastTransitionTime = transition(prev.Conditions, c, in.Now)
		out = append(out, c)
	}
	return out
}

// readyToStart returns the condition PodReadyToStartContainers: the pod has a sandbox with
// a network (KEP-3085; it has a reason since Kubernetes 1.37).
func readyToStart(in *Input) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: truth(in.SandboxNotReady == "")}
	if in.SandboxNotReady != "" {
		c.Reason, c.Message = "PodSandboxNotReady", in.SandboxNotReady
	}
	return c
}

// resizes returns the conditions about a resize. It returns none for a pod in a terminal phase.
func resizes(in *Input, prev, st *v1.PodStatus) []v1.PodCondition {
	if podmeta.IsTerminal(st.Phase) {
		return nil
	}
	var out []v1.PodCondition
	for _, c := range in.Resize {
		old := v1.PodCondition{}
		if i := slices.IndexFunc(prev.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type }); i >= 0 {
			// The generation and the transition time of the former condition may be
			// kept.
			old = prev.Conditions[i]
		}
		switch c.Type {
		case v1.PodResizePending:
			// The API has two reasons for a pending resize: anything but Infeasible is
			// Deferred.
			if c.Reason != v1.PodReasonInfeasible {
				c.Reason = v1.PodReasonDeferred
			}
		case v1.PodResizeInProgress:
			// The generation belongs to the resize in progress, not to one that was requested
			// later.
			c.ObservedGeneration = cmp.Or(c.ObservedGeneration, old.ObservedGeneration)
		default:
			continue
		}
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, in.Pod.Generation)
		c.LastTransitionTime = moment(in.Now)
		// Unlike for other conditions, a changed reason changes the time, too.
		if old.Status == c.Status && old.Reason == c.Reason && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

// SetCondition replaces the condition of c's type in st, or adds c. The transition time of c
// becomes now; if the former condition has the same status, its time is kept. SetCondition is for
// adding [v1.DisruptionTarget] to the result of [Of] when a pod is ended; later calls of Of keep
// that condition.
func SetCondition(st *v1.PodStatus, c v1.PodCondition, now time.Time) {
	c.LastTransitionTime = transition(st.Conditions, c, now)
	i := slices.IndexFunc(st.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
	} else {
		st.Conditions[i] = c
	}
}

// SetReadiness computes the conditions ContainersReady and Ready again, after the phase,
// the container statuses or other conditions of st were changed.
func SetReadiness(pod *v1.Pod, st *v1.PodStatus, now time.Time) {
	containers := containersReady(pod, st)
	// Ready follows ContainersReady, so that is computed first and set with it.
	for _, c := range []v1.PodCondition{containers, ready(pod, containers, st.Conditions)} {
		c.ObservedGeneration = pod.Generation
		SetCondition(st, c, now)
	}
}

// foreign returns the conditions of other writers, and the newest DisruptionTarget.
func foreign(current, previous []v1.PodCondition) []v1.PodCondition {
	disrupted := func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }
	// Both the API server and this node may have said why the pod is disrupted:
	// an eviction here, a taint there.
	ours := slices.IndexFunc(previous, disrupted)
	if theirs := slices.IndexFunc(current, disrupted); ours >= 0 && theirs >= 0 &&
		previous[ours].LastTransitionTime.Before(&current[theirs].LastTransitionTime) {
		ours = -1
	}
	var out []v1.PodCondition
	for i := range current {
		if t := current[i].Type; !slices.Contains(owned, t) && (t != v1.DisruptionTarget || ours < 0) {
			out = append(out, *current[i].DeepCopy())
		}
	}
	if ours >= 0 {
		out = append(out, *previous[ours].DeepCopy())
	}
	return out
}

// truth converts a bool to the status of a condition.
func truth(b bool) v1.ConditionStatus {
	if b {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// transition returns the transition time of a condition: that in prev if the status is
// the same, else now.
func transition(prev []v1.PodCondition, c v1.PodCondition, now time.Time) metav1.Time {
	for i := range prev {
		if prev[i].Type == c.Type && prev[i].Status == c.Status && !prev[i].LastTransitionTime.IsZero() {
			return prev[i].LastTransitionTime
		}
	}
	return moment(now)
}

// unmet returns the names of those containers selected by counts for which ok returns false. The
// containers without a status are in missing, the others in failing.
func unmet(specs []v1.Container, statuses []v1.ContainerStatus, counts func(*v1.Container) bool, ok func(*v1.Container, *v1.ContainerStatus) bool) (missing, failing []string) {
	for i := range specs {
		c := &specs[i]
		if !counts(c) {
			continue
		}
		switch s := find(statuses, c.Name); {
		case s == nil:
			missing = append(missing, c.Name)
		case !ok(c, s):
			failing = append(failing, c.Name)
		}
	}
	return missing, failing
}

// message returns the text of a condition about containers, for the containers that unmet
// returned. word is the text's word for the containers in failing, such as "unready". The text is
// the kubelet's, since tools match it.
func message(missing, failing []string, word string) string {
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: [%s]", strings.Join(missing, " ")))
	}
	if len(failing) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: [%s]", word, strings.Join(failing, " ")))
	}
	return strings.Join(parts, ", ")
}

// containersReady returns the condition ContainersReady: all regular containers and
// sidecars are ready.
func containersReady(pod *v1.Pod, st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	// Without statuses the containers count as not ready.
	if st.ContainerStatuses == nil && len(pod.Spec.Containers) > 0 {
		c.Reason = "UnknownContainerStatuses"
		return c
	}
	isReady := func(_ *v1.Container, s *v1.ContainerStatus) bool { return s.Ready }
	all := func(*v1.Container) bool { return true }
	unknown, unready := unmet(pod.Spec.InitContainers, st.InitContainerStatuses, podmeta.IsSidecar, isReady)
	u, n := unmet(pod.Spec.Containers, st.ContainerStatuses, all, isReady)
	unknown, unready = append(unknown, u...), append(unready, n...)
	switch {
	// Not ready, since nothing runs; the reason shows that this is no fault.
	case st.Phase == v1.PodSucceeded && len(unknown) == 0:
		c.Reason = "PodCompleted"
	case st.Phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case len(unknown)+len(unready) > 0:
		c.Reason = "ContainersNotReady"
		c.Message = message(unknown, unready, "unready")
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// ready returns the condition Ready: the containers are ready, and so are the readiness
// gates of the spec (KEP-580), which are conditions of other writers.
func ready(pod *v1.Pod, containers v1.PodCondition, conditions []v1.PodCondition) v1.PodCondition {
	c := containers
	c.Type = v1.PodReady
	if containers.Status != v1.ConditionTrue {
		return c
	}
	var missing []string
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(conditions, func(p v1.PodCondition) bool { return p.Type == gate.ConditionType })
		switch {
		case i < 0:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case conditions[i].Status != v1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, conditions[i].Status))
		}
	}
	if len(missing) > 0 {
		return v1.PodCondition{
			Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "ReadinessGatesNotReady",
			Message: strings.Join(missing, ", "),
		}
	}
	return c
}

// initialized returns the condition Initialized: all init containers have completed. Once
// it is true it stays true, since others may have acted on it.
func initialized(pod *v1.Pod, st, prev *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if len(pod.Spec.InitContainers) == 0 {
		if st.Phase == v1.PodSucceeded {
			c.Reason = "PodCompleted"
		}
		return c
	}
	if st.InitContainerStatuses == nil {
		c.Status, c.Reason = v1.ConditionFalse, "UnknownContainerStatuses"
		return c
	}
	all := func(*v1.Container) bool { return true }
	unknown, incomplete := unmet(pod.Spec.InitContainers, st.InitContainerStatuses, all, func(c *v1.Container, s *v1.ContainerStatus) bool {
		if podmeta.IsSidecar(c) {
			// A sidecar is done with initialization when it has started (KEP-753).
			return s.Started != nil && *s.Started
		}
		return s.Ready
	})
	switch {
	case st.Phase == v1.PodSucceeded && len(unknown) == 0:
		c.Reason = "PodCompleted"
		return c
	// If a regular container has started, the init containers have completed, even if they
	// were removed since.
	case len(unknown)+len(incomplete) == 0, everStarted(st):
		return c
	}
	was := slices.ContainsFunc(prev.Conditions, func(p v1.PodCondition) bool {
		return p.Type == v1.PodInitialized && p.Status == v1.ConditionTrue
	})
	if was {
		return c // in a new sandbox they run again; the condition stays true
	}
	c.Status, c.Reason = v1.ConditionFalse, "ContainersNotInitialized"
	c.Message = message(unknown, incomplete, "incomplete")
	return c
}

// everStarted reports whether a regular container runs or ran.
func everStarted(st *v1.PodStatus) bool {
	return slices.ContainsFunc(st.ContainerStatuses, func(s v1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}
