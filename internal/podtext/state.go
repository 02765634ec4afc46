package podtext

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// State returns the STATUS column of a pod: the reason for which a container waits
// or has ended, otherwise the phase.
func State(p *v1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	if s := initState(p); s != "" {
		return s
	}
	phase := orWord(string(p.Status.Phase), string(v1.PodPending))
	failed, completed, running := "", "", false
	for i := range p.Status.ContainerStatuses {
		switch s := p.Status.ContainerStatuses[i].State; {
		case s.Waiting != nil && s.Waiting.Reason != "":
			return s.Waiting.Reason
		case s.Running != nil:
			running = true
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			failed = orWord(failed, ending(s.Terminated))
		case s.Terminated != nil:
			completed = orWord(completed, ending(s.Terminated))
		}
	}
	switch {
	case p.Status.Reason != "":
		return p.Status.Reason
	case failed != "":
		return failed
	case running:
		return phase
	}
	return orWord(completed, phase)
}

// initState is the progress of the init containers, or the state of the first that
// has not done its part; "" once all have.
func initState(p *v1.Pod) string {
	done := 0
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		switch t := s.State.Terminated; {
		case t != nil && t.ExitCode == 0, isSidecar(p, s.Name) && s.Started != nil && *s.Started:
			done++
			continue
		case t != nil:
			return "Init:" + ending(t)
		case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
			return "Init:" + s.State.Waiting.Reason
		}
		if !terminalPhase(p.Status.Phase) {
			return fmt.Sprintf("Init:%d/%d", done, len(p.Spec.InitContainers))
		}
	}
	return ""
}

// ending is the reason of a container's end, in a word.
func ending(t *v1.ContainerStateTerminated) string {
	return orWord(t.Reason, "ExitCode:"+strconv.Itoa(int(t.ExitCode)))
}

func terminalPhase(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }
