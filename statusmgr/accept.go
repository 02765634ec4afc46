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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podstatus"
)

// messageBudget is what the termination messages of a pod may take together,
// in bytes (the API's documentation of terminationMessagePolicy: 12 KiB).
const messageBudget = 12 << 10

// accept takes a status that is the manager's own. finished is sticky; force
// accepts even what says nothing new.
func (m *Manager) accept(pod *v1.Pod, next *v1.PodStatus, finished, force bool) bool {
	e := m.entries[pod.UID]
	old := &pod.Status
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
	m.countTerminated(old, next)
	if e != nil && !force && saysSame(e.status, next) {
		e.pod, e.status = pod, next
		return false
	}
	added := e == nil
	if added {
		e = &entry{}
		m.entries[pod.UID] = e
	}
	e.urgent = e.urgent || added || old.Phase != next.Phase || isTrue(old, v1.PodReady) != isTrue(next, v1.PodReady)
	e.pod, e.status = pod, next
	e.version++
	// A static pod may come back under the same UID.
	e.finished = finished || e.finished && !podmeta.IsStatic(pod)
	if e.since.IsZero() {
		e.since = now
	}
	m.enqueue(e)
	m.notify(Change{UID: pod.UID, Pod: pod, Status: next, Added: added, Finished: e.finished})
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

// ours are the conditions that the node writes, alone or with others. What
// else there is, others have told the world already.
var ours = []v1.PodConditionType{
	v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
	v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting, v1.DisruptionTarget,
}

// saysSame tells whether b tells the world nothing that a has not. Of
// conditions, times and generations say nothing of their own.
func saysSame(a, b *v1.PodStatus) bool {
	for _, typ := range ours {
		x, y := find(a.Conditions, typ), find(b.Conditions, typ)
		if (x == nil) != (y == nil) || x != nil && (x.Status != y.Status || x.Reason != y.Reason || x.Message != y.Message) {
			return false
		}
	}
	x, y := *a, *b
	for _, st := range []*v1.PodStatus{&x, &y} {
		st.Conditions, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus = nil, nil, nil
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

// keepLegal puts back what cannot have changed: a container that came to an
// end for good does not come to life. Everything else in next stays. It tells
// what it put back.
func keepLegal(pod *v1.Pod, old, next *v1.PodStatus) (illegal []string) {
	// Whatever ended lives again when another container has all start over.
	startsOver := podmeta.CanRestartAll(pod) && !podmeta.IsTerminal(old.Phase)
	check := func(specs []v1.Container, was, is []v1.ContainerStatus, sidecars bool) {
		for i := range is {
			j := slices.IndexFunc(was, func(s v1.ContainerStatus) bool { return s.Name == is[i].Name })
			k := slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == is[i].Name })
			if j < 0 || k < 0 || was[j].State.Terminated == nil || is[i].State.Terminated != nil {
				continue
			}
			c := &specs[k]
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

// keepTimes keeps the start time, and the transition times of the node's
// conditions that have not changed. Others' times are theirs.
func keepTimes(old, next *v1.PodStatus, now time.Time) {
	switch {
	case old.StartTime != nil && !old.StartTime.IsZero():
		next.StartTime = old.StartTime.DeepCopy()
	case next.StartTime == nil || next.StartTime.IsZero():
		t := metav1.NewTime(now)
		next.StartTime = &t
	}
	next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	for i := range next.Conditions {
		c := &next.Conditions[i]
		if !slices.Contains(ours, c.Type) || c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			continue // of a resize, the reason changes, which whoever decides on it dates
		}
		was := find(old.Conditions, c.Type)
		if was != nil && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			c.LastTransitionTime = was.LastTransitionTime
		} else if was != nil || c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
}

// normalize makes equal statuses look equal: times in whole seconds as the API
// keeps them, lists in order, messages within their budget.
func normalize(pod *v1.Pod, st *v1.PodStatus) {
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	budget := messageBudget / max(containers, 1)
	second := func(t *metav1.Time) {
		if t != nil && !t.IsZero() {
			*t = metav1.NewTime(t.Truncate(time.Second))
		}
	}
	second(st.StartTime)
	for i := range st.Conditions {
		second(&st.Conditions[i].LastTransitionTime)
		second(&st.Conditions[i].LastProbeTime)
	}
	state := func(s *v1.ContainerState) {
		if s.Running != nil {
			second(&s.Running.StartedAt)
		}
		if s.Terminated != nil {
			second(&s.Terminated.StartedAt)
			second(&s.Terminated.FinishedAt)
			s.Terminated.Message = truncate(s.Terminated.Message, budget)
		}
	}
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			state(&list[i].State)
			state(&list[i].LastTerminationState)
		}
	}
	byName := func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(st.ContainerStatuses, byName)
	slices.SortStableFunc(st.EphemeralContainerStatuses, byName)
	place := func(name string) int {
		return slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
	}
	slices.SortStableFunc(st.InitContainerStatuses, func(a, b v1.ContainerStatus) int {
		return cmp.Compare(place(a.Name), place(b.Name))
	})
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
	for _, g := range []struct {
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
			j := slices.IndexFunc(g.was, func(s v1.ContainerStatus) bool { return s.Name == g.is[i].Name })
			if j < 0 || g.was[j].State.Terminated == nil {
				m.met.terminated.WithLabelValues(g.kind, fmt.Sprint(end.ExitCode), reasonLabel(end.Reason)).Inc()
			}
		}
	}
}

// terminatedStatus gives an end to every container that has none.
func terminatedStatus(pod *v1.Pod, st *v1.PodStatus) *v1.PodStatus {
	end := func(s *v1.ContainerStatus) {
		if s.State.Terminated == nil {
			s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: "ContainerStatusUnknown", ExitCode: 137, ContainerID: s.ContainerID,
				Message: "The container could not be located when the pod was terminated",
			}}
			s.Ready, s.Started = false, new(bool)
		}
	}
	if initialized(pod, st) {
		for i := range st.ContainerStatuses {
			end(&st.ContainerStatuses[i])
		}
	}
	// Those after the last init container that was ever begun never ran.
	begun := 0
	for i := range st.InitContainerStatuses {
		s := &st.InitContainerStatuses[i]
		if s.State.Waiting == nil || s.LastTerminationState.Terminated != nil {
			begun = i
		}
	}
	for i := range st.InitContainerStatuses {
		if i <= begun {
			end(&st.InitContainerStatuses[i])
		}
	}
	if !podmeta.IsStatic(pod) && !podmeta.IsTerminal(st.Phase) {
		st.Phase = v1.PodFailed
	}
	return st
}

// initialized tells whether the regular containers could have been started.
func initialized(pod *v1.Pod, st *v1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 {
		return true
	}
	for i := range st.ContainerStatuses {
		if s := &st.ContainerStatuses[i]; s.State.Waiting == nil && s.State != (v1.ContainerState{}) || s.LastTerminationState.Terminated != nil {
			return true
		}
	}
	n := len(pod.Spec.InitContainers)
	if len(st.InitContainerStatuses) < n {
		return false
	}
	s := &st.InitContainerStatuses[n-1]
	if podmeta.IsSidecar(&pod.Spec.InitContainers[n-1]) {
		return s.State.Running != nil && s.Started != nil && *s.Started
	}
	for _, t := range []*v1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil && t.ExitCode == 0 {
			return true
		}
	}
	return false
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
