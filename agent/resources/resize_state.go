package resources

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// state is what is known of one pod.
type state struct {
	asks      *v1.Pod // the newest version
	allocated *allocation
	// known means that allocated is what the pod has; until then it is what the
	// pod asked for first.
	known bool
	// queued means that what the pod asks for has not been decided on.
	queued bool
	// resized means that containers may have been resized from what they were
	// made with, which a record says that had not been read when the pod was
	// recalled. It ends with the first sync that goes by the records.
	resized bool

	pending, progress *v1.PodCondition
	waitsSince        time.Time // pending was set

	// record means that there has to be a record of allocated, and recorded is
	// the one that there is, or nil. urgent means that no container may be
	// changed before they are the same.
	record, urgent bool
	recorded       *allocation
}

// remember takes a record that has been read.
func (s *state) remember(a *allocation) {
	s.allocated, s.recorded = a, a
	s.known, s.record = true, true
}

// inherit takes what a kubelet allocated, which is recorded if the pod asks for
// something else by now.
func (s *state) inherit(a *allocation) {
	if !a.differs(s.asks) {
		return
	}
	s.allocated, s.recorded = a, nil
	s.known, s.record, s.queued = true, true, true
}

// learn takes what runs of the pod, unless that is known, and reports whether
// there is something to be decided on.
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

// onlyListed reports whether all that is known of a pod is that it is there.
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

// undecided reports whether a decision is to be made: for the first time, or
// again, since there may be more room.
func (s *state) undecided() bool {
	return s.known && s.queued || s.pending != nil && s.pending.Reason == v1.PodReasonDeferred
}

// wait takes note that the pod waits for what it asks for, and reports whether
// that is news.
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

// proceed takes note that a resize is under way, and err of why it does not come
// to its end. It reports whether that is news.
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
