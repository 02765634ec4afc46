// Package verdict has the statuses of pods that were not admitted.
package verdict

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podstatus"
)

const (
	rejectedMessage = "Pod was rejected: "
	waitingMessage  = "Pod waits to be admitted: "
)

// Waiting is the status of a pod that waits to be admitted.
func Waiting(pod *v1.Pod, r part.Rejection) v1.PodStatus {
	st := podstatus.Of(podstatus.Input{Pod: pod, NeedsSandbox: true, Now: time.Now()})
	st.Phase, st.Reason, st.Message = v1.PodPending, r.Reason, waitingMessage+r.Message
	return st
}

// Rejected is the status of a pod that was rejected.
func Rejected(pod *v1.Pod, r part.Rejection) v1.PodStatus {
	st := podstatus.Of(podstatus.Input{Pod: pod, NeedsSandbox: true, Now: time.Now()})
	st.Phase, st.Reason, st.Message = v1.PodFailed, r.Reason, rejectedMessage+r.Message
	st.ContainerStatuses, st.InitContainerStatuses, st.Conditions = nil, nil, nil
	st.AllocatedResources, st.Resources = nil, nil
	return st
}

// WasRejected reports whether a status is that of a pod that was rejected.
func WasRejected(st *v1.PodStatus) bool {
	return st.Phase == v1.PodFailed && strings.HasPrefix(st.Message, rejectedMessage) && len(st.ContainerStatuses) == 0
}
