package statusmgr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// updateReadiness makes the conditions ContainersReady and Ready follow the
// containers, the phase and the readiness gates. It says what package
// podstatus says in the same case, word for word: a test sees to that.
func updateReadiness(pod *v1.Pod, st *v1.PodStatus, now time.Time) {
	containers := containersReady(pod, st)
	setCondition(st, containers, now)
	ready := containers
	ready.Type = v1.PodReady
	if missing := shutGates(pod, st); containers.Status == v1.ConditionTrue && len(missing) > 0 {
		ready.Status, ready.Reason = v1.ConditionFalse, "ReadinessGatesNotReady"
		ready.Message = strings.Join(missing, ", ")
	}
	setCondition(st, ready, now)
}

func containersReady(pod *v1.Pod, st *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse, ObservedGeneration: pod.Generation}
	unknown, unready := unreadyContainers(pod, st)
	switch {
	case st.ContainerStatuses == nil && len(pod.Spec.Containers) > 0:
		c.Reason = "UnknownContainerStatuses"
	case st.Phase == v1.PodSucceeded && len(unknown) == 0:
		c.Reason = "PodCompleted"
	case st.Phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case len(unknown)+len(unready) > 0:
		c.Reason = "ContainersNotReady"
		var parts []string
		if len(unknown) > 0 {
			parts = append(parts, fmt.Sprint("containers with unknown status: ", unknown))
		}
		if len(unready) > 0 {
			parts = append(parts, fmt.Sprint("containers with unready status: ", unready))
		}
		c.Message = strings.Join(parts, ", ")
	default:
		c.Status = v1.ConditionTrue
	}
	return c
}

// unreadyContainers are the sidecars and regular containers that have no
// status, and those that are not ready.
func unreadyContainers(pod *v1.Pod, st *v1.PodStatus) (unknown, unready []string) {
	note := func(name string, statuses []v1.ContainerStatus) {
		i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == name })
		switch {
		case i < 0:
			unknown = append(unknown, name)
		case !statuses[i].Ready:
			unready = append(unready, name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podmeta.IsSidecar(c) {
			note(c.Name, st.InitContainerStatuses)
		}
	}
	for i := range pod.Spec.Containers {
		note(pod.Spec.Containers[i].Name, st.ContainerStatuses)
	}
	return unknown, unready
}

// shutGates tells, in a sentence for each, which readiness gates are not open.
func shutGates(pod *v1.Pod, st *v1.PodStatus) (missing []string) {
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := find(st.Conditions, gate.ConditionType); {
		case c == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	return missing
}

func setCondition(st *v1.PodStatus, c v1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	was := find(st.Conditions, c.Type)
	if was == nil {
		st.Conditions = append(st.Conditions, c)
		return
	}
	if was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	*was = c
}
