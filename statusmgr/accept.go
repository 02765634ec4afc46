package statusmgr

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
	"github.com/nodewright/nodewright/podstatus"
)

// How a new status is accepted: put into the kept form, compared with the one
// before, and given to subscribers and to publication. All of it happens under
// m.mu, so that subscribers see the statuses of a pod in the order in which they
// were accepted.

// accept makes r the pod's current report, and returns whether the status differs from the previous
// one. The Manager owns r.Status from then on. finished reports that nothing of the pod is left on
// the node; a finished pod stays finished, except if a static pod comes back. The caller holds
// m.mu.
func (m *Manager) accept(pod *v1.Pod, r Report, finished bool) bool {
	e, next := m.entries[pod.UID], &r.Status
	// What the disk has of an earlier life says nothing about this one.
	if e != nil && e.restored && e.unsent() && e.life < r.Life {
		m.drop(pod.UID, e)
		e = nil
	}
	if e != nil && r.Life < e.life {
		return false
	}
	var past []*v1.PodStatus
	// Transition times are those that others have seen, and not of a status that was not
	// published: a Deployment counts minReadySeconds from them.
	if seen := r.Shown.status(pod); e == nil || e.shown.By < podlife.Confirmed && seen.Phase != "" {
		past = append(past, seen)
	}
	if e != nil {
		past = append(past, e.status)
	}
	old, now := past[len(past)-1], time.Now()
	// Before the comparison: a status that differs only in times, order or
	// impossible changes is no news.
	m.correct(pod, past, next, now)
	why := r.cause()
	added, stopped := e == nil || e.restored, false
	if e == nil {
		e = m.newEntry(pod.UID)
		e.shown, e.runs = r.Shown, r.Runs
	} else {
		moved := e.show(r.Shown)
		stopped = e.runs != observed.No && r.Runs == observed.No && podmeta.IsTerminal(next.Phase)
		e.runs = r.Runs
		// A static pod may come back under the same UID. One whose deletion is asked for after
		// it was finished has left its directory and its containers, which go first.
		asked := pod.DeletionTimestamp != nil && e.pod.DeletionTimestamp == nil
		finished = finished || e.finished && !podmeta.IsStatic(pod) && !asked
		// The newer value is kept although nothing is published: conditions of
		// other writers in it may be new, and Get returns them.
		if e.finished == finished && !stopped && sameStatus(e.status, next) {
			e.pod, e.status, e.life, e.why, e.restored = pod, next, r.Life, why, false
			if added {
				m.subs.Publish(Change{UID: pod.UID, Pod: pod, Status: next, Added: true, Finished: finished})
			}
			m.refresh(e)
			if moved {
				m.republish(e)
			}
			return false
		}
	}
	m.countTerminated(old, next)
	m.serial++
	e.pod, e.status, e.life, e.why, e.finished, e.restored = pod, next, r.Life, why, finished, false
	// Load balancers and controllers act on phase and readiness: such changes go
	// before the others.
	urgent := e.urgent || added || finished || stopped || old.Phase != next.Phase || isTrue(old, v1.PodReady) != isTrue(next, v1.PodReady)
	final, deletion := e.facts()
	// Publication is noted first, then subscribers are told: both only queue, and
	// neither waits.
	m.advance(e, input{event: onSet, final: final, deletion: deletion, version: m.serial, urgent: urgent, now: now})
	m.subs.Publish(Change{UID: pod.UID, Pod: pod, Status: next, Added: added, Finished: finished})
	return true
}

// correct changes next, the new status, to the form in which statuses are stored and compared. past
// has the earlier statuses, the latest at the end. The order of the steps matters: first impossible
// changes are reverted, then readiness is corrected if the phase is terminal. The transition times
// come after that, since they depend on which conditions have changed.
func (m *Manager) correct(pod *v1.Pod, past []*v1.PodStatus, next *v1.PodStatus, now time.Time) {
	for _, change := range keepLegal(pod, past[len(past)-1], next) {
		m.cfg.Log.Error("rejected impossible status change", zap.String("pod", pod.Namespace+"/"+pod.Name), zap.String("change", change))
	}
	if podmeta.IsTerminal(next.Phase) && (isTrue(next, v1.PodReady) || isTrue(next, v1.ContainersReady)) {
		podstatus.SetReadiness(pod, next, now)
	}
	keepTimes(past, next, now)
	normalize(pod, next)
}

// find returns a pointer to the condition of that type in list, or nil if there is none.
func find(list []v1.PodCondition, typ v1.PodConditionType) *v1.PodCondition {
	if i := slices.IndexFunc(list, func(c v1.PodCondition) bool { return c.Type == typ }); i >= 0 {
		return &list[i]
	}
	return nil
}

// isTrue reports whether a status has the condition with the status True.
func isTrue(st *v1.PodStatus, typ v1.PodConditionType) bool {
	c := find(st.Conditions, typ)
	return c != nil && c.Status == v1.ConditionTrue
}

// keepLegal reverts in next the transitions that cannot happen, and returns
// their descriptions: a container that terminated for good does not run again,
// and a terminal phase does not change. Everything else in next stays.
func keepLegal(pod *v1.Pod, old, next *v1.PodStatus) (illegal []string) {
	check := func(specs []v1.Container, was, is []v1.ContainerStatus, sidecars bool) {
		for i := range is {
			// Only a change from terminated to something else can be impossible. A
			// container without a status before has no past.
			j := indexOf(was, i, is[i].Name)
			if j < 0 || was[j].State.Terminated == nil || is[i].State.Terminated != nil {
				continue
			}
			k := slices.IndexFunc(specs, func(c v1.Container) bool { return c.Name == is[i].Name })
			if k < 0 {
				continue
			}
			c := &specs[k]
			// Another container may restart all of them.
			restartsAll := podmeta.CanRestartAll(pod) && !podmeta.IsTerminal(old.Phase)
			if restartsAll || sidecars && podmeta.IsSidecar(c) || podmeta.RestartsAfter(pod, c, was[j].State.Terminated.ExitCode) {
				continue
			}
			illegal = append(illegal, fmt.Sprintf("container %s runs after it terminated for good with exit code %d",
				c.Name, was[j].State.Terminated.ExitCode))
			// A copy, since old stays published and normalize writes to next.
			is[i] = *was[j].DeepCopy()
		}
	}
	// A new sandbox runs the init containers again.
	check(pod.Spec.Containers, old.ContainerStatuses, next.ContainerStatuses, false)
	// Controllers have acted on a terminal phase already (a Job has counted the
	// pod): nothing takes it back.
	if podmeta.IsTerminal(old.Phase) {
		check(pod.Spec.InitContainers, old.InitContainerStatuses, next.InitContainerStatuses, true)
		if next.Phase != old.Phase {
			illegal = append(illegal, fmt.Sprintf("phase %s after %s", next.Phase, old.Phase))
			next.Phase = old.Phase
		}
	}
	return illegal
}

// indexOf returns the index of the status of the container name in list, or -1. It tries the index
// guess first.
func indexOf(list []v1.ContainerStatus, guess int, name string) int {
	if guess < len(list) && list[guess].Name == name {
		return guess
	}
	return slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name })
}

// keepTimes keeps the start time, and the transition times of the node's conditions whose status
// has not changed. A time comes from the first status of past that has it. Conditions of other
// writers keep the times that they have in next.
func keepTimes(past []*v1.PodStatus, next *v1.PodStatus, now time.Time) {
	started := false
	for _, old := range past {
		if !started && old.StartTime != nil && !old.StartTime.IsZero() {
			next.StartTime, started = old.StartTime, true
		}
		// A status that was computed from an older spec must not hide that a newer one
		// was seen.
		next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	}
	if next.StartTime == nil || next.StartTime.IsZero() {
		t := metav1.NewTime(now)
		next.StartTime = &t
	}
	for i := range next.Conditions {
		c := &next.Conditions[i]
		if !isOurs(c.Type) || c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
			continue // their times change with the reason, and were set with it
		}
		if at, known := transition(past, i, c); known || c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = at
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = metav1.NewTime(now)
		}
	}
}

// transition returns the time since which c has had its current status, according to past; zero
// if the status is new. known reports that a past status has a condition of that type. guess is
// the index at which to look first.
func transition(past []*v1.PodStatus, guess int, c *v1.PodCondition) (at metav1.Time, known bool) {
	for _, old := range past {
		var was *v1.PodCondition
		if guess < len(old.Conditions) && old.Conditions[guess].Type == c.Type {
			was = &old.Conditions[guess]
		} else if was = find(old.Conditions, c.Type); was == nil {
			continue
		}
		if known = true; was.Status == c.Status && !was.LastTransitionTime.IsZero() {
			return was.LastTransitionTime, true
		}
	}
	return metav1.Time{}, known
}

// countTerminated counts the containers that have terminated since old. A status
// that is set twice counts once, and a container that terminated during the agent's
// restart counts at its first status.
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

// sameContainer reports whether two container IDs are equal, with or without the runtime's scheme.
// Probes know the bare ID of the CRI, statuses have "containerd://ID". An empty ID equals no ID.
func sameContainer(a, b string) bool {
	bare := func(s string) string {
		if _, id, ok := strings.Cut(s, "://"); ok {
			return id
		}
		return s
	}
	return a != "" && bare(a) == bare(b)
}
