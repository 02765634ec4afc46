package podstatus

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Reasons of a restart of all containers (KEP-5532).
const (
	ReasonRestartingAllContainers = "RestartingAllContainers"

	reasonRestartAllContainersStarted     = "RestartAllContainersStarted"
	reasonRestartAllContainersCompleted   = "RestartAllContainersCompleted"
	reasonRestartAllContainersNotRequired = "RestartAllContainersNotRequired"
)

// Messages of containers that were removed for a restart of all containers.
const (
	messageRemoved = "The container was removed because all containers of the pod are restarted"
	messageWaits   = "The container was removed, and starts again with all containers of the pod"
)

// restartingAll reports whether missing containers were removed for a restart of all
// containers.
func (in *Input) restartingAll() bool {
	// The containers of a pod that is ending are not created again.
	return !in.Terminal && in.Pod.DeletionTimestamp == nil && (in.RestartAll || in.restartGoesOn())
}

// restartGoesOn reports whether a restart of all containers is unfinished: containers that
// it has removed were not created again yet. The container that triggered it may be
// missing, and others may have started already.
func (in *Input) restartGoesOn() bool {
	prev := in.previous()
	if !podmeta.CanRestartAll(in.Pod) || !slices.ContainsFunc(prev.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	}) {
		return false
	}
	// A waiting container has been removed; any other state is from before the restart.
	gone := func(s v1.ContainerStatus) bool {
		return s.State.Waiting == nil && in.Observed.Newest(s.Name) == nil
	}
	return slices.ContainsFunc(prev.InitContainerStatuses, gone) || slices.ContainsFunc(prev.ContainerStatuses, gone)
}

// takenAway returns the status of a container that was removed for a restart of all
// containers. A container that did not exist keeps its waiting state.
func (in *Input) takenAway(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	st := in.waitingFor(c, before)
	// It was waiting before: this is not one more restart.
	if before == nil || before.State.Running == nil && before.State.Terminated == nil {
		return st
	}
	st.State.Waiting = &v1.ContainerStateWaiting{Reason: ReasonRestartingAllContainers, Message: messageWaits}
	st.LastTerminationState = v1.ContainerState{Terminated: takenEnd(before)}
	st.RestartCount++
	return st
}

// takenEnd returns the terminated state of a container that was removed for a restart of
// all containers.
func takenEnd(before *v1.ContainerStatus) *v1.ContainerStateTerminated {
	end := &v1.ContainerStateTerminated{
		Reason: ReasonRestartingAllContainers, ExitCode: unknownExitCode, ContainerID: before.ContainerID,
		Message: messageRemoved,
	}
	if r := before.State.Running; r != nil {
		// It was killed for the restart; the time is not known.
		end.StartedAt = r.StartedAt
	} else {
		end.StartedAt, end.FinishedAt = before.State.Terminated.StartedAt, before.State.Terminated.FinishedAt
	}
	return end
}

// restartingAll returns the condition about a restart of all containers. For a pod without such a
// rule it returns an empty condition.
func restartingAll(in *Input, st *v1.PodStatus) v1.PodCondition {
	if !podmeta.CanRestartAll(in.Pod) {
		// Most pods have no such rule, and no condition.
		return v1.PodCondition{}
	}
	c := v1.PodCondition{
		Type: v1.AllContainersRestarting, Status: v1.ConditionFalse,
		Reason: reasonRestartAllContainersNotRequired, Message: "No container of the pod has required all of them to restart",
	}
	prev := in.previous().Conditions
	i := slices.IndexFunc(prev, func(o v1.PodCondition) bool { return o.Type == c.Type })
	switch {
	case in.restartingAll() && !podmeta.IsTerminal(st.Phase):
		c.Status, c.Reason = v1.ConditionTrue, reasonRestartAllContainersStarted
		c.Message = "All containers of the pod are removed and started again" + triggerOf(in.Pod, st)
	case i >= 0 && prev[i].Status == v1.ConditionTrue:
		c.Reason, c.Message = reasonRestartAllContainersCompleted, "All containers of the pod were removed for a restart"
	// The result of the last restart is shown until the next one.
	case i >= 0 && prev[i].Reason != "":
		c.Reason, c.Message = prev[i].Reason, prev[i].Message
	}
	return c
}

// triggerOf returns the name of the container whose exit triggered a restart of all containers.
// It returns "" if no status shows such an exit any more.
func triggerOf(pod *v1.Pod, st *v1.PodStatus) string {
	for _, g := range []Group{RegularContainers, InitContainers} {
		specs, statuses := g.of(pod, st)
		for i := range specs {
			s := find(statuses, specs[i].Name)
			if s == nil || s.State.Terminated == nil || !podmeta.RestartsAllAfter(&specs[i], s.State.Terminated.ExitCode) {
				continue
			}
			return fmt.Sprintf(", because container %s ended with exit code %d", specs[i].Name, s.State.Terminated.ExitCode)
		}
	}
	return ""
}
