package lifecycle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// start is the recorded start of one pod.
type start struct {
	seen    time.Time
	counts  bool // it was created at a known time and was not started before
	runs    bool
	started bool // the agent knows that all containers have started
	over    bool // nothing is left to measure

	pulls  int       // running pulls
	since  time.Time // start of the first of these pulls
	spans  []span    // pulls, which do not overlap
	merged time.Duration
	init   []span // time spans of init containers
}

// span is a time span that is subtracted from the duration of a start.
type span struct{ from, to time.Time }

// maxSpans limits the time spans of a pod whose images cannot be pulled for hours.
const maxSpans = 64

func newStart(pod *v1.Pod, now time.Time, ranBefore bool) *start {
	return &start{
		seen: now, over: ranBefore || podmeta.IsTerminal(pod.Status.Phase),
		counts: !podmeta.IsStatic(pod) && !pod.CreationTimestamp.IsZero() && pod.Status.StartTime.IsZero() && !unschedulable(&pod.Status),
	}
}

func (s *start) pullBegan(now time.Time) {
	if s.pulls++; s.pulls == 1 {
		s.since = now
	}
}

func (s *start) pullEnded(now time.Time) {
	if s.pulls--; s.pulls > 0 || s.over {
		return
	}
	s.spans = append(s.spans, span{s.since, now})
	if len(s.spans) > maxSpans {
		s.merged += s.spans[0].to.Sub(s.spans[0].from)
		s.spans = slices.Delete(s.spans, 0, 1)
	}
}

// follow records a status that the agent has computed.
func (s *start) follow(pod *v1.Pod, st *v1.PodStatus) {
	if podmeta.IsTerminal(st.Phase) {
		s.over, s.spans = true, nil // the pod ended before a status showed its start
		return
	}
	if s.started || !hasStarted(pod, st) {
		return
	}
	s.started = true
	for i := range st.InitContainerStatuses {
		if t := st.InitContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(t.StartedAt.Time) {
			s.init = append(s.init, span{t.StartedAt.Time, t.FinishedAt.Time})
		}
	}
}

// waited returns how long images were pulled or init containers ran.
func (s *start) waited() time.Duration {
	all := slices.Concat(s.spans, s.init)
	slices.SortFunc(all, func(x, y span) int { return x.from.Compare(y.from) })
	sum, end := s.merged, time.Time{}
	for _, sp := range all {
		if sp.from.Before(end) {
			sp.from = end
		}
		if sp.to.After(sp.from) {
			sum += sp.to.Sub(sp.from)
			end = sp.to
		}
	}
	return sum
}

// hasStarted reports whether all containers of a pod run.
func hasStarted(pod *v1.Pod, st *v1.PodStatus) bool {
	if len(st.ContainerStatuses) < len(pod.Spec.Containers) {
		return false
	}
	for i := range st.ContainerStatuses {
		if r := st.ContainerStatuses[i].State.Running; r == nil || r.StartedAt.IsZero() {
			return false
		}
	}
	return true
}

// unschedulable reports whether a pod had to wait for a node.
func unschedulable(st *v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
}

// stateful reports whether a pod has a volume with data that outlives the pod or does not come from
// the API server.
func stateful(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}
