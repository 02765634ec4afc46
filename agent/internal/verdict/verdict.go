// Package verdict computes the statuses of pods that were not admitted.
package verdict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
)

// Why returns the Cause of a rejected or waiting pod.
func Why(r part.Rejection) podlife.Cause {
	kind := podlife.Rejected
	if r.Waits() {
		kind = podlife.Waits
	}
	return podlife.Cause{Kind: kind, Reason: r.Reason, Message: r.Message}
}

// Waiting returns the status of a pod that waits to be admitted. Its phase is Pending, or
// Running if previous or seen show that the pod ran in an earlier process of the agent.
// previous may be nil. Containers that have not been inspected keep their previous statuses.
func Waiting(pod *v1.Pod, r part.Rejection, previous *v1.PodStatus, seen observed.View) v1.PodStatus {
	in := podstatus.Input{Pod: pod, SandboxNotReady: podlife.SandboxOf(pod, nil).Lack, Now: time.Now(), Previous: previous}
	if seen.Depth == observed.Whole {
		in.Observed = seen.Pod
	}
	if previous != nil {
		in.Runtime = runtimeOf(previous)
	}
	st := podstatus.Of(in)
	if was := cmp.Or(previous, &pod.Status); in.Observed == nil && len(was.ContainerStatuses) > 0 {
		was = was.DeepCopy() // the pod is shared
		st.InitContainerStatuses, st.ContainerStatuses = was.InitContainerStatuses, was.ContainerStatuses
	}
	if st.Phase != v1.PodPending {
		// Not terminal, even if all containers have exited: a waiting pod has no worker, which
		// would end it.
		st.Phase = v1.PodRunning
	}
	Why(r).Apply(&st)
	return st
}

// runtimeOf returns the runtime's name, taken from the container IDs of a status, or "". The loop
// uses it, since the loop must not wait for a call of the runtime.
func runtimeOf(st *v1.PodStatus) string {
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		if name, _, ok := strings.Cut(c.ContainerID, "://"); ok {
			return name
		}
	}
	return ""
}

// Ran reports whether a status shows a container that has run.
func Ran(st *v1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(st.InitContainerStatuses, st.ContainerStatuses), func(c v1.ContainerStatus) bool {
		return c.ContainerID != "" || c.RestartCount > 0 || c.LastTerminationState.Terminated != nil
	})
}

// Rejected returns the status of a rejected pod.
func Rejected(pod *v1.Pod, r part.Rejection) v1.PodStatus {
	st := podstatus.Of(podstatus.Input{Pod: pod, SandboxNotReady: podlife.SandboxOf(pod, nil).Lack, Now: time.Now()})
	Why(r).Apply(&st)
	return st
}
