package statusmgr

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// The last status of a pod of which nothing is left, by the rules of the kubelet.
// Containers that nobody saw end get the code of a SIGKILL (128+9).

// terminatedStatus makes every container of st that was started terminated. st is
// changed and returned. Containers that never started stay waiting, which says that
// they never ran.
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
	// Those after the last init container that was started never ran.
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
	// A static pod may start again under the same UID, and a terminal phase is for
	// ever.
	if !podmeta.IsStatic(pod) && !podmeta.IsTerminal(st.Phase) {
		st.Phase = v1.PodFailed
	}
	return st
}

// initialized reports whether the regular containers may have been started. If no regular container
// runs or ran, the status of the last init container decides.
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
