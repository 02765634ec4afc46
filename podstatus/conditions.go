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

// owned are the conditions that a node agent writes. All others belong to
// somebody else and pass through, as the pod's own status has them.
// DisruptionTarget is shared: the later word counts, the node's of two that
// are as late.
var owned = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodResizeInProgress,
	v1.PodResizePending, v1.PodReadyToStartContainers, v1.AllContainersRestarting,
}

// Conditions computes the conditions for the statuses in st. A condition
// whose status has not changed keeps its transition time.
func Conditions(in Input, st *v1.PodStatus) []v1.PodCondition {
	in.Now = in.now()
	// Own conditions are made anew each time; prev has what lasts, as times of
	// transitions and that initialization was over once.
	prev := in.previous()
	out := foreign(in.Pod.Status.Conditions, prev.Conditions)
	containers := containersReady(in.Pod, st)
	// Readiness gates are conditions of others, which are in out by now.
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

// readyToStart is the condition that a pod has a sandbox with a network (KEP-3085; its
// reason since Kubernetes 1.37).
func readyToStart(in *Input) v1.PodCondition {
	c := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: truth(in.SandboxNotReady == "")}
	if in.SandboxNotReady != "" {
		c.Reason, c.Message = "PodSandboxNotReady", in.SandboxNotReady
	}
	return c
}

// resizes are the conditions that tell of a resize. Nobody resizes a pod that
// has come to its end.
func resizes(in *Input, prev, st *v1.PodStatus) []v1.PodCondition {
	if podmeta.IsTerminal(st.Phase) {
		return nil
	}
	var out []v1.PodCondition
	for _, c := range in.Resize {
		old := v1.PodCondition{}
		if i := slices.IndexFunc(prev.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type }); i >= 0 {
			// What a resize keeps of the condition before: its generation and its
			// time.
			old = prev.Conditions[i]
		}
		switch c.Type {
		case v1.PodResizePending:
			// The API knows two reasons of a pending resize, and this is the milder
			// one.
			if c.Reason != v1.PodReasonInfeasible {
				c.Reason = v1.PodReasonDeferred
			}
		case v1.PodResizeInProgress:
			// It reports the resize that is under way, not of the one that
			// was asked for since.
			c.ObservedGeneration = cmp.Or(c.ObservedGeneration, old.ObservedGeneration)
		default:
			continue
		}
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, in.Pod.Generation)
		c.LastTransitionTime = moment(in.Now)
		// Unlike those of other conditions, the time changes with the reason as
		// well.
		if old.Status == c.Status && old.Reason == c.Reason && !old.LastTransitionTime.IsZero() {
			c.LastTransitionTime = old.LastTransitionTime
		}
		out = append(out, c)
	}
	return out
}

// SetCondition puts a condition in the place of the one of its type, or at the
// end. It changed at now, unless the one before has the same status. It is for
// those who end pods, to add [v1.DisruptionTarget] to what [Of] computed: from
// there on, that stays.
func SetCondition(st *v1.PodStatus, c v1.PodCondition, now time.Time) {
	c.LastTransitionTime = transition(st.Conditions, c, now)
	i := slices.IndexFunc(st.Conditions, func(o v1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		st.Conditions = append(st.Conditions, c)
	} else {
		st.Conditions[i] = c
	}
}

// SetReadiness makes the conditions ContainersReady and Ready of st follow its
// phase, its container statuses and its other conditions, for those who change
// these after the whole was computed.
func SetReadiness(pod *v1.Pod, st *v1.PodStatus, now time.Time) {
	containers := containersReady(pod, st)
	// Ready follows ContainersReady, so that is computed first and set with it.
	for _, c := range []v1.PodCondition{containers, ready(pod, containers, st.Conditions)} {
		c.ObservedGeneration = pod.Generation
		SetCondition(st, c, now)
	}
}

// foreign are the conditions of others, and what is known of a disruption.
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

// truth is the status of a condition that is known.
func truth(b bool) v1.ConditionStatus {
	if b {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// transition is when a condition took on its status: what prev says if that is
// the same one, else now.
func transition(prev []v1.PodCondition, c v1.PodCondition, now time.Time) metav1.Time {
	for i := range prev {
		if prev[i].Type == c.Type && prev[i].Status == c.Status && !prev[i].LastTransitionTime.IsZero() {
			return prev[i].LastTransitionTime
		}
	}
	return moment(now)
}

// unmet sorts the containers that have to be ready (or, of the init phase,
// done) into those without a status and those that are not.
func unmet(specs []v1.Container, statuses []v1.ContainerStatus, counts func(*v1.Container) bool, ok func(*v1.Container, *v1.ContainerStatus) bool) (unknown, not []string) {
	for i := range specs {
		c := &specs[i]
		if !counts(c) {
			continue
		}
		switch s := find(statuses, c.Name); {
		case s == nil:
			unknown = append(unknown, c.Name)
		case !ok(c, s):
			not = append(not, c.Name)
		}
	}
	return unknown, not
}

// message is the text of a condition about containers, in the kubelet's words:
// tools match them. is says what they are, such as unready.
func message(unknown, not []string, is string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: [%s]", strings.Join(unknown, " ")))
	}
	if len(not) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: [%s]", is, strings.Join(not, " ")))
	}
	return strings.Join(parts, ", ")
}

// containersReady is the condition that all containers which count are ready:
// regular ones and sidecars.
func containersReady(pod *v1.Pod, st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse}
	// Nobody has looked yet: unknown is not ready.
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
	// Not ready, as nothing runs; the reason says that nothing is wrong.
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

// ready is the condition that the pod may have traffic: its containers are
// ready, and so are the gates of its spec (KEP-580), which are conditions that
// others set.
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

// initialized is the condition that all init containers are done. Once true it
// stays: those who wait for it have gone on.
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
	// A regular container is proof enough, also where init containers were
	// removed.
	case len(unknown)+len(incomplete) == 0, everStarted(st):
		return c
	}
	was := slices.ContainsFunc(prev.Conditions, func(p v1.PodCondition) bool {
		return p.Type == v1.PodInitialized && p.Status == v1.ConditionTrue
	})
	if was {
		return c // a sandbox made anew runs them again; the pod stays what it was
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
