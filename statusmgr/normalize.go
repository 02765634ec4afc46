package statusmgr

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// messageBudget is the limit of all termination messages of a pod together, in bytes (the API's
// documentation of terminationMessagePolicy: 12 KiB).
const messageBudget = 12 << 10

// normalize changes st so that equal statuses compare as equal: times are cut to whole seconds as
// in the API, lists are sorted, and messages are cut to their budget. It writes only to st and its
// lists. Values behind pointers may be shared and are replaced.
func normalize(pod *v1.Pod, st *v1.PodStatus) {
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	// Each container has the same share, also if others need none: the result does
	// not depend on who terminated first.
	budget := messageBudget / max(containers, 1)
	if st.StartTime != nil && st.StartTime.Nanosecond() != 0 {
		t := second(*st.StartTime)
		st.StartTime = &t
	}
	for i := range st.Conditions {
		st.Conditions[i].LastTransitionTime = second(st.Conditions[i].LastTransitionTime)
		st.Conditions[i].LastProbeTime = second(st.Conditions[i].LastProbeTime)
	}
	for _, list := range [...][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, budget)
			normalizeState(&list[i].LastTerminationState, budget)
		}
	}
	for _, list := range [...][]v1.ContainerStatus{st.ContainerStatuses, st.EphemeralContainerStatuses} {
		if !sortedByName(list) {
			slices.SortStableFunc(list, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	// Init containers keep the order in which they run, which the API and kubectl
	// show.
	sortBySpec(pod.Spec.InitContainers, st.InitContainerStatuses)
}

// second cuts a time to whole seconds, as the API stores it. A zero time, which means not known,
// stays zero.
func second(t metav1.Time) metav1.Time {
	if t.IsZero() {
		return t
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// normalizeState normalizes the state of a container. It replaces the values behind pointers, since
// the previous status may share them. budget is the limit of the termination message in bytes.
func normalizeState(s *v1.ContainerState, budget int) {
	if r := s.Running; r != nil && r.StartedAt.Nanosecond() != 0 {
		s.Running = &v1.ContainerStateRunning{StartedAt: second(r.StartedAt)}
	}
	if t := s.Terminated; t != nil && (t.StartedAt.Nanosecond() != 0 || t.FinishedAt.Nanosecond() != 0 || len(t.Message) > budget) {
		end := *t
		end.StartedAt, end.FinishedAt, end.Message = second(t.StartedAt), second(t.FinishedAt), truncate(t.Message, budget)
		s.Terminated = &end
	}
}

// sortedByName reports whether list is sorted by name already, as in most calls.
func sortedByName(list []v1.ContainerStatus) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1].Name > list[i].Name {
			return false
		}
	}
	return true
}

// sortBySpec sorts the statuses of init containers by the order of the spec, in which the
// containers run.
func sortBySpec(specs []v1.Container, list []v1.ContainerStatus) {
	sorted := true
	for i := range list {
		sorted = sorted && i < len(specs) && list[i].Name == specs[i].Name
	}
	if sorted {
		return
	}
	place := func(name string) int {
		return slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == name })
	}
	slices.SortStableFunc(list, func(a, b v1.ContainerStatus) int { return cmp.Compare(place(a.Name), place(b.Name)) })
}

// truncate cuts s to at most n bytes, between characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
