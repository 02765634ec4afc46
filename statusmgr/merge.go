package statusmgr

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// merge returns the status to publish if other programs write to it too: the node's status ours,
// with the fields of other writers from api, the published status. couldHaveRunning reports that
// containers of the pod may still run.
//
//   - Conditions that the node does not write, and the fields about resource
//     claims, are the API's. [v1.DisruptionTarget] has several writers: the node's is
//     published together with the terminal phase that it explains.
//   - A new terminal phase waits until no container can run. Until then phase,
//     reason and message stay the API's; everything else is published.
//   - A pod whose phase is terminal is not ready, since its last container
//     terminated.
//
// It is a pure function. Its result shares memory with api and ours.
func merge(api, ours v1.PodStatus, couldHaveRunning bool) v1.PodStatus {
	out := ours
	// A controller that sees a terminal phase starts the next pod: with a container
	// still running, both would use the same volume or port.
	ending := !podmeta.IsTerminal(api.Phase) && podmeta.IsTerminal(ours.Phase)
	if ending && couldHaveRunning {
		out.Phase, out.Reason, out.Message = api.Phase, api.Reason, api.Message
	}
	out.ResourceClaimStatuses = api.ResourceClaimStatuses
	out.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	out.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
	out.Conditions = mergeConditions(api.Conditions, ours.Conditions, ending && !couldHaveRunning)
	if podmeta.IsTerminal(out.Phase) {
		endReadiness(&out)
	}
	return out
}

// mergeConditions returns the node's conditions from the list ours and the conditions of other
// writers from the list api, as far as possible in the order of ours. disrupted reports that the
// node's DisruptionTarget is taken.
func mergeConditions(api, ours []v1.PodCondition, disrupted bool) []v1.PodCondition {
	out := make([]v1.PodCondition, 0, len(api)+len(ours))
	for _, c := range ours {
		theirs := find(api, c.Type)
		switch {
		// DisruptionTarget (KEP-3329) explains a failure: it comes with the phase,
		// neither before nor after.
		case c.Type == v1.DisruptionTarget && disrupted:
			if theirs != nil && theirs.Status == c.Status && !theirs.LastTransitionTime.IsZero() {
				c.LastTransitionTime = theirs.LastTransitionTime
			}
		case c.Type == v1.DisruptionTarget || !isOurs(c.Type):
			if theirs == nil {
				continue
			}
			c = *theirs
		}
		out = append(out, c)
	}
	// Those that the new status does not mention; a patch of the list would remove
	// them.
	for _, c := range api {
		if (c.Type == v1.DisruptionTarget || !isOurs(c.Type)) && find(out, c.Type) == nil {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// endReadiness makes a pod that has ended not ready. The transition time is the end of the last
// container, when traffic should have stopped.
func endReadiness(st *v1.PodStatus) {
	reason := "PodCompleted"
	if st.Phase == v1.PodFailed {
		reason = "PodFailed"
	}
	ended := lastEnd(st)
	for i := range st.Conditions {
		c := &st.Conditions[i]
		if c.Status != v1.ConditionTrue || c.Type != v1.PodReady && c.Type != v1.ContainersReady {
			continue
		}
		c.Status, c.Reason, c.Message = v1.ConditionFalse, reason, ""
		if ended.After(c.LastTransitionTime.Time) {
			c.LastTransitionTime = metav1.NewTime(ended)
		}
	}
}

// lastEnd returns the time when the last container terminated; zero if it is not known.
func lastEnd(st *v1.PodStatus) (last time.Time) {
	for _, list := range [...][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	return last
}
