package shutdown

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the kubelet says of pods and of the node during a shutdown; clients
// compare some of it.
const (
	// ReasonTerminated is the reason in the status of a pod that was ended.
	ReasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated in response to imminent node shutdown."

	// ReasonNotAdmitted is the reason in the status of a pod that came too
	// late.
	ReasonNotAdmitted  = "NodeShutdown"
	messageNotAdmitted = "Pod was rejected as the node is shutting down."

	// reasonShutdown is the reason of the events on the node.
	reasonShutdown = "Shutdown"
	messageBegun   = "Shutdown manager detected shutdown event"
	messageOff     = "Shutdown manager detected shutdown cancellation"
)

// markTerminated writes into a pod's status that the shutdown ended it. A pod that
// has succeeded stays so.
func markTerminated(status *v1.PodStatus, now time.Time) {
	if status.Phase != v1.PodSucceeded {
		status.Phase = v1.PodFailed
	}
	status.Reason, status.Message = ReasonTerminated, messageTerminated
	cond := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: v1.PodReasonTerminationByKubelet, Message: messageTerminated,
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == v1.DisruptionTarget {
			if c.Status == v1.ConditionTrue {
				cond.LastTransitionTime = c.LastTransitionTime
			}
			cond.ObservedGeneration, cond.LastProbeTime = c.ObservedGeneration, c.LastProbeTime
			*c = cond
			return
		}
	}
	status.Conditions = append(status.Conditions, cond)
}
