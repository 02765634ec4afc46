package statusmgr

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podstatus"
)

// messageBudget is what the termination messages of a pod may take together,
// in bytes (the API's documentation of terminationMessagePolicy: 12 KiB).
const messageBudget = 12 << 10

// accept takes a status that is the manager's own. before is what the world
// knows of a pod that the manager does not. finished is sticky.
func (m *Manager) accept(pod *v1.Pod, before, next *v1.PodStatus, finished bool) bool {
	e := m.entries[pod.UID]
	old := before
	if e != nil {
		old = e.status
	}
	now := time.Now()
	for _, what := range keepLegal(pod, old, next) {
		m.met.illegal.Inc()
		m.cfg.Log.Error("impossible status change was left out", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("what", what))
	}
	if podmeta.IsTerminal(next.Phase) && (isTrue(next, v1.PodReady) || isTrue(next, v1.ContainersReady)) {
		podstatus.SetReadiness(pod, next, now)
	}
	keepTimes(old, next, now)
	normalize(pod, next)
	added := e == nil || e.restored
	if e == nil {
		e = &entry{}
		m.entries[pod.UID] = e
	} else {
		// A static pod may come back under the same UID.
		finished = finished || e.finished && !podmeta.IsStatic(pod)
		if e.finished == finished && saysSame(e.status, next) {
			e.pod, e.status, e.restored = pod, next, false
			if added {
				m.notify(Change{UID: pod.UID, Pod: pod, Status: next, Added: true, Finished: finished})
			}
			m.enqueue(e) // a deletion may be due
			return false
		}
	}
	m.countTerminated(old, next)
	e.urgent = e.urgent || added || finished || old.Phase != next.Phase || isTrue(old, v1.PodReady) != isTrue(next, v1.PodReady)
	m.serial++
	e.pod, e.status, e.version, e.finished, e.restored = pod, next, m.serial, finished, false
	e.homeless, e.waits = false, 0
	if e.since.IsZero() {
		e.since = now
	}
	if finished || podmeta.IsTerminal(next.Phase) {
		m.saveSoon(pod.UID)
	}
	m.enqueue(e)
	m.notify(Change{UID: pod.UID, Pod: pod, Status: next, Added: added, Finished: finished})
	return true
}

func find(list []v1.PodCondition, typ v1.PodConditionType) *v1.PodCondition {
	if i := slices.IndexFunc(list, func(c v1.PodCondition) bool { return c.Type == typ }); i >= 0 {
		return &list[i]
	}
	return nil
}

func isTrue(st *v1.PodStatus, typ v1.PodConditionType) bool {
	c := find(st.Conditions, typ)
	return c != nil && c.Status == v1.ConditionTrue
}

// keepLegal puts back what cannot have changed: a container that came to an
// end for good does not come to life. Everything else in next stays. It tells
// what it put back.
func keepLegal(pod *v1.Pod, old, next *v1.PodStatus) (illegal []string) {
	check := func(specs []v1.Container, was, is []v1.ContainerStatus, sidecars bool) {
		for i := range is {
			j := indexOf(was, i, is[i].Name)
			if j < 0 || was[j].State.Terminated == nil || is[i].State.Terminated != nil {
				continue
			}
			k := slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == is[i].Name })
			if k < 0 {
				continue
			}
			c := &specs[k]
			// Whatever ended lives again when another container has all start over.
			startsOver := podmeta.CanRestartAll(pod) && !podmeta.IsTerminal(old.Phase)
			if startsOver || sidecars && podmeta.IsSidecar(c) || podmeta.RestartsAfter(pod, c, was[j].State.Terminated.ExitCode) {
				continue
			}
			illegal = append(illegal, fmt.Sprintf("container %s ended for good with exit code %d and is said to live",
				c.Name, was[j].State.Terminated.ExitCode))
			is[i] = *was[j].DeepCopy()
		}
	}
	// A sandbox that was made anew runs its init containers again.
	check(pod.Spec.Containers, old.ContainerStatuses, next.ContainerStatuses, false)
	if podmeta.IsTerminal(old.Phase) {
		check(pod.Spec.InitContainers, old.InitContainerStatuses, next.InitContainerStatuses, true)
		if next.Phase != old.Phase {
			illegal = append(illegal, fmt.Sprintf("phase %s after %s", next.Phase, old.Phase))
			next.Phase = old.Phase
		}
	}
	return illegal
}

// indexOf finds a container's status, most often in the place where it was.
func indexOf(list []v1.ContainerStatus, guess int, name string) int {
	if guess < len(list) && list[guess].Name == name {
		return guess
	}
	return slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name })
}

// keepTimes keeps the start time, and the transition times of the node's
// conditions that have not changed. Others' times are theirs.
func keepTimes(old, next *v1.PodStatus, now time.Time) {
	switch {
	case old.StartTime != nil && !old.StartTime.IsZero():
		next.StartTime = old.StartTime
	case next.StartTime == nil || next.StartTime.IsZero():
		t := metav1.NewTime(now)
		next.StartTime = &t
	}
	next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	for i := range next.Conditions {
		c := &next.Conditions[i]
		if !isOurs(c.Type) || c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			continue // of a resize, the reason changes, which whoever decides on it dates
		}
		var was *v1.PodCondition
		if i < len(old.Conditions) && old.Conditions[i].Type == c.Type {
			was = &old.Conditions[i]
		} else {
			was = find(old.Conditions, c.Type)
		}
		if was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		} else if was != nil || c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
}

// normalize makes equal statuses look equal: times in whole seconds as the API
// keeps them, lists in order, messages within their budget. It writes to st and
// its lists alone; what they point to may be shared, and is replaced instead.
func normalize(pod *v1.Pod, st *v1.PodStatus) {
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
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
	sortBySpec(pod.Spec.InitContainers, st.InitContainerStatuses)
}

func second(t metav1.Time) metav1.Time {
	if t.IsZero() {
		return t
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

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

func sortedByName(list []v1.ContainerStatus) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1].Name > list[i].Name {
			return false
		}
	}
	return true
}

// sortBySpec brings the statuses of init containers into the order in which
// they run.
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

// countTerminated counts the containers that have ended since old.
func (m *Manager) countTerminated(old, next *v1.PodStatus) {
	for _, g := range [...]struct {
		kind    string
		was, is []v1.ContainerStatus
	}{
		{"init_container", old.InitContainerStatuses, next.InitContainerStatuses},
		{"container", old.ContainerStatuses, next.ContainerStatuses},
		{"ephemeral_container", old.EphemeralContainerStatuses, next.EphemeralContainerStatuses},
	} {
		for i := range g.is {
			end := g.is[i].State.Terminated
			if end == nil {
				continue
			}
			j := indexOf(g.was, i, g.is[i].Name)
			if j < 0 || g.was[j].State.Terminated == nil {
				m.met.terminated.WithLabelValues(g.kind, exitLabel(end.ExitCode), reasonLabel(end.Reason)).Inc()
			}
		}
	}
}

// sameContainer compares container IDs, with or without the runtime's scheme.
func sameContainer(a, b string) bool {
	bare := func(s string) string {
		if _, id, ok := strings.Cut(s, "://"); ok {
			return id
		}
		return s
	}
	return a != "" && bare(a) == bare(b)
}
