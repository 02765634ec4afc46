package podtext

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// sidecars returns the names of the pod's sidecars: init containers with restartPolicy
// Always.
func sidecars(p *v1.Pod) map[string]bool {
	out := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			out[c.Name] = true
		}
	}
	return out
}

// readyOf returns the number of containers and sidecars, and how many of them are ready.
func readyOf(p *v1.Pod) (ready, all int) {
	side := sidecars(p)
	all = len(p.Spec.Containers) + len(side)
	for _, s := range p.Status.ContainerStatuses {
		if s.Ready && s.State.Running != nil {
			ready++
		}
	}
	for _, s := range p.Status.InitContainerStatuses {
		if side[s.Name] && s.Ready && s.Started != nil && *s.Started {
			ready++
		}
	}
	return ready, all
}

// State returns the value of the column Status as kubectl prints it: the pod's phase, or the reason
// for the state of the pod or of a container.
func State(p *v1.Pod) string {
	reason := orWord(p.Status.Reason, orWord(string(p.Status.Phase), string(v1.PodPending)))
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated {
			reason = v1.PodReasonSchedulingGated
		}
	}
	initial, starting := initStatus(p)
	switch {
	case starting:
		reason = initial
	case p.Status.Phase == v1.PodFailed && p.Status.Reason != "": // such as Evicted; more informative than a container's state
	default:
		reason = runStatus(p, reason)
	}
	if p.DeletionTimestamp == nil {
		return reason
	}
	if p.Status.Reason == "NodeLost" {
		return "Unknown"
	}
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return "Terminating"
	}
	return reason
}

// initStatus returns the state of the first init container that has not completed, or the first
// sidecar that has not started. It returns false if there is none.
func initStatus(p *v1.Pod) (string, bool) {
	side := sidecars(p)
	for i, s := range p.Status.InitContainerStatuses {
		switch t, w := s.State.Terminated, s.State.Waiting; {
		case t != nil && t.ExitCode == 0, side[s.Name] && s.Started != nil && *s.Started:
			continue
		case t != nil:
			return "Init:" + endOf(t), true
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			return "Init:" + w.Reason, true
		default:
			return fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers)), true
		}
	}
	return "", false
}

// endOf returns the reason, the signal or the exit code of a terminated container.
func endOf(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

// runStatus returns the reason of the first container that is waiting or terminated. If that reason
// is Completed and another container is running, it returns Running or NotReady. If there is no such
// container, it returns the parameter reason.
func runStatus(p *v1.Pod, reason string) string {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		s := &p.Status.ContainerStatuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			reason = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			reason = endOf(s.State.Terminated)
		case s.Ready && s.State.Running != nil:
			running = true
		}
	}
	if reason != "Completed" || !running {
		return reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return "Running"
		}
	}
	return "NotReady"
}

// restarts returns the number of restarts and the time since the last one. While the pod
// is initializing, it counts the restarts of init containers; afterwards those of
// containers and sidecars. The pod's evictions count as restarts.
func restarts(p *v1.Pod, evicted Evictions, now time.Time) string {
	count, last := int32(0), time.Time{}
	add := func(s *v1.ContainerStatus) {
		count += s.RestartCount
		if t := s.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	_, starting := initStatus(p)
	side := sidecars(p)
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; starting || side[s.Name] {
			add(s)
		}
	}
	for i := range p.Status.ContainerStatuses {
		if !starting {
			add(&p.Status.ContainerStatuses[i])
		}
	}
	cause := ""
	if count += evicted.Count; evicted.Last.After(last) {
		cause, last = "evicted ", evicted.Last
	}
	if count == 0 || last.IsZero() {
		return fmt.Sprint(count)
	}
	return fmt.Sprintf("%d (%s%s ago)", count, cause, duration.HumanDuration(now.Sub(last)))
}

func gates(p *v1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	met := 0
	for _, g := range p.Spec.ReadinessGates {
		for _, c := range p.Status.Conditions {
			if c.Type == g.ConditionType && c.Status == v1.ConditionTrue {
				met++
			}
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}
