package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Reasons of a restart of all containers (KEP-5532).
const (
	ReasonRestartingAllContainers     = "RestartingAllContainers"
	reasonRestartAllContainersStarted = "RestartAllContainersStarted"
)

// restartingAll tells whether containers that are not there were taken away to
// be made anew.
func (in *Input) restartingAll() bool {
	return in.RestartAll && !in.Terminal && in.Pod.DeletionTimestamp == nil
}

// takenAway is the status of a container that was removed so that all start
// from scratch. One that was not there to be removed just waits on.
func (in *Input) takenAway(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	st := in.waitingFor(c, before)
	if before == nil || before.State.Running == nil && before.State.Terminated == nil {
		return st
	}
	end := &v1.ContainerStateTerminated{
		Reason: ReasonRestartingAllContainers, ExitCode: unknownExitCode, ContainerID: before.ContainerID,
		Message: "The container was removed because all containers of the pod are restarted",
	}
	if r := before.State.Running; r != nil {
		end.StartedAt = r.StartedAt
	} else {
		end.StartedAt, end.FinishedAt = before.State.Terminated.StartedAt, before.State.Terminated.FinishedAt
	}
	st.LastTerminationState = v1.ContainerState{Terminated: end}
	st.RestartCount++
	return st
}

// restartingAll is the condition that tells of it; of pods that have no such
// rule, none.
func restartingAll(in *Input, st *v1.PodStatus) v1.PodCondition {
	if !podmeta.CanRestartAll(in.Pod) {
		return v1.PodCondition{}
	}
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	if in.restartingAll() && !podmeta.IsTerminal(st.Phase) {
		c.Status, c.Reason = v1.ConditionTrue, reasonRestartAllContainersStarted
	}
	return c
}
