package resources

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// state has what one pod asks for, what it is allocated, and how far its resize is.
type state struct {
	asks      *v1.Pod // the newest version
	allocated *allocation
	// known means that allocated is the actual allocation of the pod. Before that, allocated is
	// the pod's first request.
	known bool
	// queued means that no decision has been made on the request yet.
	queued bool
	// resized means that containers may have been resized since their creation, according to a
	// record that was read after the pod was recalled. It is false again after the first sync
	// that uses the records.
	resized bool

	pending, progress *v1.PodCondition
	waitsSince        time.Time // pending was set

	// record means that the store needs a record of allocated. recorded is the stored allocation,
	// or nil. urgent means that no container may be changed before allocated is stored.
	record, urgent bool
	recorded       *allocation
}

// remember makes a, which was read from the pod's record, the allocation in effect.
func (s *state) remember(a *allocation) {
	s.allocated, s.recorded = a, a
	s.known, s.record = true, true
}

// inherit uses a kubelet's allocation. It is recorded if the pod requests other resources now.
func (s *state) inherit(a *allocation) {
	if !a.differs(s.asks) {
		return
	}
	s.allocated, s.recorded = a, nil
	s.known, s.record, s.queued = true, true, true
}

// learn uses the resources of the running containers, unless the allocation is known, and reports
// whether a decision is needed.
func (s *state) learn(obs *observed.Pod, restored bool) (queued bool) {
	if !s.known {
		if onlyListed(obs) {
			return false
		}
		s.known = true
		if made, ok := madeWith(s.asks, obs); ok {
			s.allocated = made
			s.resized = !restored && made.differs(s.asks)
		}
	}
	s.queued = s.allocated.differs(s.asks)
	return s.queued
}

// onlyListed reports whether a pod was only listed, not inspected.
func onlyListed(obs *observed.Pod) bool {
	if obs == nil {
		return true
	}
	for i := range obs.Containers {
		if obs.Containers[i].Name == "" {
			return true
		}
	}
	return false
}

// unrecorded reports whether the record has to be written.
func (s *state) unrecorded() bool { return s.record && s.recorded != s.allocated }

// undecided reports whether a decision on the request is needed. This is so before the first
// decision. For a waiting pod it is always so, since resources may be free now.
func (s *state) undecided() bool {
	return s.known && s.queued || s.pending != nil && s.pending.Reason == v1.PodReasonDeferred
}

// wait records that the pod waits for its request, and reports whether its condition changed.
func (s *state) wait(reason, message string) (c *v1.PodCondition, news bool) {
	c, old := condition(s.asks, v1.PodResizePending, reason, message), s.pending
	if old == nil {
		s.waitsSince, s.record = time.Now(), true
	}
	if old == nil || old.Reason != c.Reason {
		return c, true
	}
	c.LastTransitionTime = old.LastTransitionTime
	return c, old.ObservedGeneration != c.ObservedGeneration
}

// proceed records that a resize is in progress; err is the error that delays it, or nil. It
// reports whether the condition changed.
func (s *state) proceed(pod *v1.Pod, err error) (news bool) {
	c, old := condition(pod, v1.PodResizeInProgress, "", ""), s.progress
	if err != nil {
		c.Reason, c.Message = v1.PodReasonError, err.Error()
	}
	s.progress = c
	if old == nil {
		return true
	}
	c.ObservedGeneration = old.ObservedGeneration
	if old.Reason == c.Reason {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return old.Reason != c.Reason || old.Message != c.Message
}

func condition(pod *v1.Pod, t v1.PodConditionType, reason, message string) *v1.PodCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return &v1.PodCondition{
		Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: pod.Generation, LastProbeTime: now, LastTransitionTime: now,
	}
}
