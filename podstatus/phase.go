package podstatus

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// tally counts the containers of a pod by what they mean for its phase.
type tally struct {
	pod *v1.Pod
	// restarting reports that all containers are being started again.
	restarting bool

	pendingInit, failedInit   int
	pendingSidecar            int
	unknown, waiting          int
	running, stopped          int
	succeeded, stoppedForGood int
}

// Phase computes the phase from the container statuses in st. terminal reports
// that nothing will be started any more; active that a regular container was
// started in the current sandbox.
func Phase(pod *v1.Pod, st *v1.PodStatus, terminal, active bool) v1.PodPhase {
	t := tally{pod: pod}
	return t.phase(st, terminal, active)
}

func (t *tally) phase(st *v1.PodStatus, terminal, active bool) v1.PodPhase {
	pod := t.pod
	for i := range pod.Spec.InitContainers {
		t.init(&pod.Spec.InitContainers[i], find(st.InitContainerStatuses, pod.Spec.InitContainers[i].Name))
	}
	for i := range pod.Spec.Containers {
		t.regular(&pod.Spec.Containers[i], find(st.ContainerStatuses, pod.Spec.Containers[i].Name))
	}
	switch {
	case t.failedInit > 0:
		return v1.PodFailed
	case t.pendingInit > 0, t.pendingSidecar > 0 && !active, t.waiting > 0:
		return v1.PodPending
	case t.running > 0 && t.unknown == 0:
		return v1.PodRunning
	case t.running == 0 && t.stopped > 0 && t.unknown == 0:
		return t.ended(terminal && !podmeta.IsStatic(pod))
	default:
		return v1.PodPending
	}
}

// ended is the phase of a pod of which nothing runs.
func (t *tally) ended(terminal bool) v1.PodPhase {
	if !terminal && t.stoppedForGood < t.stopped {
		return v1.PodRunning // something will be restarted
	}
	if t.stopped == t.succeeded {
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	if i := slices.IndexFunc(list, func(s v1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// again reports whether a container is started again after that end. What all
// containers are restarted for comes back, whatever its policy says.
func (t *tally) again(c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return t.restarting || end.Reason == ReasonRestartingAllContainers || podmeta.RestartsAfter(t.pod, c, end.ExitCode)
}

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
	case s.State.Waiting != nil && s.LastTerminationState.Terminated != nil:
	case s.State.Waiting != nil:
		t.pendingSidecar++
		t.waiting++
	default:
		t.pendingSidecar++
		t.unknown++
	}
}

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
