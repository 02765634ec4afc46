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

// Messages of a container that was removed for the sake of a restart of all.
const (
	messageRemoved = "The container was removed because all containers of the pod are restarted"
	messageWaits   = "The container was removed, and starts again with all containers of the pod"
)

// restartingAll reports whether containers that are not there were taken away to
// be made anew.
func (in *Input) restartingAll() bool {
	// A pod that ends does not wait for containers to come back.
	return !in.Terminal && in.Pod.DeletionTimestamp == nil && (in.RestartAll || in.restartGoesOn())
}

// restartGoesOn reports whether a restart of all that was under way has removed
// containers that are not there again yet. The container that wanted it may be gone by
// then, and others started already.
func (in *Input) restartGoesOn() bool {
	prev := in.previous()
	if !podmeta.CanRestartAll(in.Pod) || !slices.ContainsFunc(prev.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	}) {
		return false
	}
	// A waiting one is known to be removed already; any other state is of before.
	gone := func(s v1.ContainerStatus) bool {
		return s.State.Waiting == nil && in.Observed.Newest(s.Name) == nil
	}
	return slices.ContainsFunc(prev.InitContainerStatuses, gone) || slices.ContainsFunc(prev.ContainerStatuses, gone)
}

// takenAway is the status of a container that was removed so that all start
// from scratch. One that was not there to be removed just waits on.
func (in *Input) takenAway(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	st := in.waitingFor(c, before)
	// It waited before, for its first start or since an earlier look: it must not
	// be counted as one more restart.
	if before == nil || before.State.Running == nil && before.State.Terminated == nil {
		return st
	}
	st.State.Waiting = &v1.ContainerStateWaiting{Reason: ReasonRestartingAllContainers, Message: messageWaits}
	st.LastTerminationState = v1.ContainerState{Terminated: takenEnd(before)}
	st.RestartCount++
	return st
}

// takenEnd is the end of a container that ran or had ended, and was removed so that all
// start from scratch.
func takenEnd(before *v1.ContainerStatus) *v1.ContainerStateTerminated {
	end := &v1.ContainerStateTerminated{
		Reason: ReasonRestartingAllContainers, ExitCode: unknownExitCode, ContainerID: before.ContainerID,
		Message: messageRemoved,
	}
	if r := before.State.Running; r != nil {
		// It was killed for the restart, at a time that nobody noted.
		end.StartedAt = r.StartedAt
	} else {
		end.StartedAt, end.FinishedAt = before.State.Terminated.StartedAt, before.State.Terminated.FinishedAt
	}
	return end
}

// restartingAll is the condition that reports it; of pods that have no such
// rule, none.
func restartingAll(in *Input, st *v1.PodStatus) v1.PodCondition {
	if !podmeta.CanRestartAll(in.Pod) {
		// Most pods: the condition would only be noise there.
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
	// What the last restart said stays readable until the next one.
	case i >= 0 && prev[i].Reason != "":
		c.Reason, c.Message = prev[i].Reason, prev[i].Message
	}
	return c
}

// triggerOf names the container that wants all to restart, while its status
// shows it.
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
