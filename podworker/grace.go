package podworker

import v1 "k8s.io/api/core/v1"

// effectiveGrace returns the seconds a pod has to end, given those it had
// (0: none yet), and whether that is less than before.
//
// The first computation takes the least of the pod's deletion grace period
// and the override, or else the spec's; from then on it only shrinks. Anything
// below 1 counts as 1, the least that lets a process see its signal. A pod of which only
// the runtime knows has none: its containers carry theirs, and its spec may come later.
func effectiveGrace(current int64, pod *v1.Pod, override *int64) (grace int64, shortened bool) {
	if current == 0 && pod == nil && override == nil {
		return 0, false
	}
	grace = current
	candidate := func(s *int64) {
		if s != nil && (grace == 0 || max(*s, 1) < grace) {
			grace = max(*s, 1)
		}
	}
	if pod != nil {
		candidate(pod.DeletionGracePeriodSeconds)
	}
	candidate(override)
	if grace == 0 && pod != nil {
		candidate(pod.Spec.TerminationGracePeriodSeconds)
	}
	grace = max(grace, 1)
	return grace, current != 0 && grace < current
}
