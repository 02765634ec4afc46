package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// tally counts the containers of a pod by what they mean for its phase.
type tally struct {
	pod *v1.Pod
	// restarting reports that all containers are being restarted. stranded reports that no further
	// container will start, since the pod has lost its sandbox and may not run again.
	restarting, stranded bool

	// pendingInit counts init containers that have not completed. failedInit counts those that
	// failed and are not restarted.
	pendingInit, failedInit int
	// pendingSidecar counts sidecars that have not started yet.
	pendingSidecar int
	// unknown counts regular containers and sidecars without a status. waiting counts those that
	// never ran.
	unknown, waiting int
	// running and stopped count regular containers and sidecars. podruntime ends sidecars when the
	// regular containers have ended.
	running, stopped int
	// succeeded counts the stopped containers with exit code 0. stoppedForGood counts those that
	// are not restarted.
	succeeded, stoppedForGood int
}

// Phase computes the phase from the container statuses in st. terminal reports that no container
// will be started any more. active reports that a regular container was started in the current
// sandbox.
func Phase(pod *v1.Pod, st *v1.PodStatus, terminal, active bool) v1.PodPhase {
	t := tally{pod: pod}
	return t.phase(st, terminal, active)
}

// phase counts the containers and returns the phase. Ephemeral containers do not count.
func (t *tally) phase(st *v1.PodStatus, terminal, active bool) v1.PodPhase {
	pod := t.pod
	for i := range pod.Spec.InitContainers {
		t.init(&pod.Spec.InitContainers[i], find(st.InitContainerStatuses, pod.Spec.InitContainers[i].Name))
	}
	for i := range pod.Spec.Containers {
		t.regular(&pod.Spec.Containers[i], find(st.ContainerStatuses, pod.Spec.Containers[i].Name))
	}
	switch {
	// The first that applies: a failure ends the pod whatever else runs.
	case t.failedInit > 0, t.stranded && t.waiting > 0 && t.running == 0:
		return v1.PodFailed
	case t.pendingInit > 0, t.pendingSidecar > 0 && !active, t.waiting > 0:
		return v1.PodPending
	// A pod with a container that has no status is pending, as with the kubelet.
	case t.running > 0 && t.unknown == 0:
		return v1.PodRunning
	// For a static pod terminal does not count: its file is still there, and
	// starts it again.
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		return t.ended(terminal && !podmeta.IsStatic(pod))
	default:
		return v1.PodPending
	}
}

// ended returns the phase of a pod without running containers.
func (t *tally) ended(terminal bool) v1.PodPhase {
	if !terminal && t.stoppedForGood < t.stopped {
		return v1.PodRunning // something will be restarted
	}
	if t.stopped == t.succeeded {
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// find returns a pointer to the element of list with that name, or nil.
func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	if i := slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// again reports whether a container is restarted after it has ended with the given state. During a
// restart of all containers it is restarted whatever its policy is.
func (t *tally) again(c *v1.Container, state *v1.ContainerStateTerminated) bool {
	return t.restarting || state.Reason == ReasonRestartingAllContainers || podmeta.RestartsAfter(t.pod, c, state.ExitCode)
}

// init counts an init container. If the container waits, its last termination state is used.
func (t *tally) init(c *v1.Container, s *v1.ContainerStatus) {
	if podmeta.IsSidecar(c) {
		t.sidecar(s)
		return
	}
	end := func(e *v1.ContainerStateTerminated) {
		if e.ExitCode != 0 && !t.again(c, e) {
			t.failedInit++
		} else if e.ExitCode != 0 {
			t.pendingInit++
		}
	}
	switch {
	case s == nil, s.State.Running != nil:
		t.pendingInit++
	case s.State.Terminated != nil:
		end(s.State.Terminated)
	case s.LastTerminationState.Terminated != nil:
		end(s.LastTerminationState.Terminated)
		if s.LastTerminationState.Terminated.ExitCode == 0 {
			t.pendingInit++
		}
	default:
		t.pendingInit++
	}
}

// sidecar counts a sidecar. Its exit code has no influence on the phase.
func (t *tally) sidecar(s *v1.ContainerStatus) {
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
		if s.Started == nil || !*s.Started {
			t.pendingSidecar++
		}
	case s.State.Terminated != nil:
	// It waits for its restart, as in a crash loop.
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
	case s.State.Waiting != nil:
		t.pendingSidecar++
		t.waiting++
	default:
		t.pendingSidecar++
		t.unknown++
	}
}

// regular counts a regular container. A container that waits for its restart counts as stopped, but
// never as succeeded.
func (t *tally) regular(c *v1.Container, s *v1.ContainerStatus) {
	stop := func(e *v1.ContainerStateTerminated) {
		t.stopped++
		if !t.again(c, e) {
			t.stoppedForGood++
		}
	}
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
	case s.State.Terminated != nil:
		stop(s.State.Terminated)
		if s.State.Terminated.ExitCode == 0 {
			t.succeeded++
		}
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
		stop(s.LastTerminationState.Terminated)
	case s.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}
