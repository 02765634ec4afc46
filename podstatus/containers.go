package podstatus

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podmeta"
)

// Group is one of the three kinds of containers of a pod.
type Group int

// The groups.
const (
	RegularContainers Group = iota
	InitContainers
	EphemeralContainers
)

// of returns the group's containers and their statuses in st. The slices belong to pod
// and st: do not change them.
func (g Group) of(pod *v1.Pod, st *v1.PodStatus) ([]v1.Container, []v1.ContainerStatus) {
	switch g {
	case InitContainers:
		return pod.Spec.InitContainers, st.InitContainerStatuses
	case EphemeralContainers:
		specs := make([]v1.Container, len(pod.Spec.EphemeralContainers))
		for i := range specs {
			specs[i] = v1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
		return specs, st.EphemeralContainerStatuses
	default:
		return pod.Spec.Containers, st.ContainerStatuses
	}
}

// ContainerStatuses computes the statuses of one group: init containers in
// the order of the spec, others by name.
func ContainerStatuses(in Input, g Group) []v1.ContainerStatus {
	in.Observed = in.Observed.Settled()
	prev := in.previous()
	specs, old := g.of(in.Pod, prev)
	if len(specs) == 0 {
		return nil
	}
	// Computed once for all init containers.
	started := in.regularStarted()
	out := make([]v1.ContainerStatus, 0, len(specs))
	for i := range specs {
		c := &specs[i]
		var before *v1.ContainerStatus
		// By name: the statuses may be those of an older spec, in another order.
		if j := slices.IndexFunc(old, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); j >= 0 {
			before = &old[j]
		}
		st := in.containerStatus(c, g, before)
		if g == InitContainers && started && !in.restartingAll() && !podmeta.IsSidecar(c) && in.Observed.Newest(c.Name) == nil && st.State.Waiting != nil {
			// A regular container has started, so this one had succeeded, and was
			// removed since.
			st.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: ReasonCompleted, Message: lostInitMessage,
			}}
		}
		// In this order: why a container waits decides whether its probes count.
		in.applyStartError(c, g, &st)
		in.applyProbes(c, g, &st)
		out = append(out, st)
	}
	// Sorted, so that equal statuses are equal lists; those of init containers
	// follow the spec, as with the kubelet.
	if g != InitContainers {
		slices.SortFunc(out, func(a, b v1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// lostInitMessage is the kubelet's text: its node tests look for it.
const lostInitMessage = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"

// regularStarted reports whether the runtime has, or had, any regular container.
func (in *Input) regularStarted() bool {
	for i := range in.Pod.Spec.Containers {
		if in.Observed.Newest(in.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// instances returns the newest instance of a container and the instance before it, from which the
// last termination state is taken. A missing instance is nil.
func instances(p *observed.Pod, name string) (newest, second *observed.Container) {
	if p == nil {
		return nil, nil
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name != name {
			continue
		}
		if newest != nil {
			return newest, c
		}
		newest = c
	}
	return newest, nil
}

// containerStatus computes one container's status, without the results of probes.
func (in *Input) containerStatus(c *v1.Container, g Group, before *v1.ContainerStatus) v1.ContainerStatus {
	st := in.startingPoint(c, before)
	// Older instances only count in RestartCount.
	newest, second := instances(in.Observed, c.Name)
	if newest == nil {
		// Ephemeral containers are not part of a restart of all.
		if g != EphemeralContainers && in.restartingAll() {
			return in.takenAway(c, before)
		}
		in.vanished(before, &st)
		if st.VolumeMounts == nil {
			st.VolumeMounts = volumeMounts(c, &observed.Container{})
		}
		return st
	}
	if newest.State == observed.Unknown && before != nil && before.State.Terminated != nil && BareID(before.ContainerID) == BareID(newest.ID) {
		return st // its end was seen before
	}
	// The container ran, and its state is unknown now: it counts as ended, and as one
	// restart.
	unknownEnd := newest.State == observed.Unknown && before != nil && before.State.Running != nil
	in.fromRuntime(newest, unknownEnd, &st)
	granted := in.granted(c)
	st.AllocatedResources = granted.Requests.DeepCopy()
	st.Resources = effectiveResources(granted, newest, before, in.resizing(), in.allocated().Spec.Resources != nil)
	st.VolumeMounts = volumeMounts(c, newest)
	if second != nil && second.State == observed.Exited {
		st.LastTerminationState = v1.ContainerState{Terminated: in.terminated(second)}
	}
	if before == nil {
		return st
	}
	switch {
	case unknownEnd:
		st.RestartCount = before.RestartCount + 1
	// A new instance after an end that was seen. The runtime may have removed the
	// old one, or lost its count.
	case before.ContainerID != "" && before.ContainerID != st.ContainerID && before.State.Terminated != nil:
		if second == nil || second.State != observed.Exited {
			st.LastTerminationState = v1.ContainerState{Terminated: before.State.Terminated.DeepCopy()}
		}
		if st.State.Running != nil && st.RestartCount <= before.RestartCount {
			st.RestartCount = before.RestartCount + 1
		}
	case before.State.Running != nil && BareID(before.ContainerID) != BareID(st.ContainerID) && second == nil && podmeta.CanRestartAll(in.Pod):
		st.LastTerminationState = v1.ContainerState{Terminated: takenEnd(before)} // by a restart of all containers, between two statuses
	}
	// The last termination state is kept after garbage collection has removed the
	// instance.
	if st.LastTerminationState.Terminated == nil {
		st.LastTerminationState = *before.LastTerminationState.DeepCopy()
	}
	// The runtime's count comes from annotations, which may be missing.
	st.RestartCount = max(st.RestartCount, before.RestartCount)
	return st
}

// startingPoint returns a container's status before the runtime's state is added. A
// terminated state is kept until the runtime shows a newer instance.
func (in *Input) startingPoint(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	if before != nil && before.State.Terminated != nil {
		return *before.DeepCopy()
	}
	return in.waitingFor(c, before)
}

// waitingFor returns the status of a container that has not been created yet.
func (in *Input) waitingFor(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	// The kubelet's reasons for containers that have not been created.
	reason := ReasonContainerCreating
	if len(in.Pod.Spec.InitContainers) > 0 {
		reason = ReasonPodInitializing
	}
	st := v1.ContainerStatus{
		Name: c.Name, Image: c.Image,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
	}
	if before != nil {
		if w := before.State.Waiting; w != nil && w.Reason == ReasonRestartingAllContainers && in.Pod.DeletionTimestamp == nil && !in.Terminal {
			st.State.Waiting = w.DeepCopy() // kept until the container is created again
		}
		st.RestartCount = before.RestartCount
		st.LastTerminationState = *before.LastTerminationState.DeepCopy()
		// The health of devices (KEP-4680) is set by another package.
		for i := range before.AllocatedResourcesStatus {
			st.AllocatedResourcesStatus = append(st.AllocatedResourcesStatus, *before.AllocatedResourcesStatus[i].DeepCopy())
		}
	}
	return st
}

// vanished sets the last termination state of a container that ran and that the runtime
// no longer has. Its state stays waiting; the last termination state keeps the pod from
// becoming Pending.
func (in *Input) vanished(before *v1.ContainerStatus, st *v1.ContainerStatus) {
	// Only for containers that ran. One that was terminated before keeps that state, as in
	// the kubelet.
	if before == nil || before.State.Running == nil || st.LastTerminationState.Terminated != nil {
		return
	}
	message := "The container used to run, and could not be located when the pod was deleted"
	if in.Pod.DeletionTimestamp == nil {
		message = "The container used to run, and could not be located"
		st.RestartCount++
	}
	st.LastTerminationState = v1.ContainerState{Terminated: unknownEnd(before.ContainerID, message, before.State.Running.StartedAt)}
}

// unknownEnd returns the terminated state of a container whose end was not seen. It has no
// FinishedAt.
func unknownEnd(id, message string, started metav1.Time) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		Reason: ReasonContainerStatusUnknown, Message: message, ExitCode: unknownExitCode,
		StartedAt: started, ContainerID: id,
	}
}

// fromRuntime sets the fields of st that the runtime reports.
func (in *Input) fromRuntime(c *observed.Container, unknown bool, st *v1.ContainerStatus) {
	// st may be the status of an earlier instance: fields that the runtime does not
	// report for this one are cleared.
	st.ContainerID = in.containerID(c.ID)
	st.ImageID = firstOf(c.ImageRef, c.ImageID)
	if c.Image != "" {
		st.Image = c.Image
	}
	st.RestartCount = max(st.RestartCount, c.RestartCount)
	st.Ready, st.Started = false, nil
	st.StopSignal, st.User = nil, nil
	if c.StopSignal != "" {
		signal := v1.Signal(c.StopSignal)
		st.StopSignal = &signal
	}
	if c.User != nil {
		st.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
			UID: c.User.UID, GID: c.User.GID, SupplementalGroups: slices.Clone(c.User.SupplementalGroups),
		}}
	}
	switch {
	case c.State == observed.Running:
		st.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}}
	case c.State == observed.Exited:
		st.State = v1.ContainerState{Terminated: in.terminated(c)}
	case unknown:
		st.State = v1.ContainerState{Terminated: unknownEnd(st.ContainerID, "The container could not be located", metav1.NewTime(c.StartedAt))}
	// Created: it is about to be started, and has no reason for waiting.
	default:
		st.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// terminated returns the terminated state of an instance. If the runtime reports no reason, the
// reason is the one that the kubelet derives from the exit code.
func (in *Input) terminated(c *observed.Container) *v1.ContainerStateTerminated {
	reason := c.Reason
	if reason == "" {
		reason = ReasonCompleted
		if c.Code() != 0 {
			reason = ReasonError
		}
	}
	return &v1.ContainerStateTerminated{
		ExitCode: c.Code(), Reason: reason, Message: c.Message, ContainerID: in.containerID(c.ID),
		StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
	}
}

// containerID returns an ID in the form of the API, type://id, with Input.Runtime as the
// type if the ID has none.
func (in *Input) containerID(id string) string {
	if id == "" || strings.Contains(id, "://") {
		return id
	}
	return cmp.Or(in.Runtime, "containerd") + "://" + id
}

// BareID returns a container ID of a status without its type, as the runtime uses it.
func BareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// firstOf returns a, or b if a is empty.
func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// applyStartError sets the waiting state of a container whose start failed.
func (in *Input) applyStartError(c *v1.Container, g Group, st *v1.ContainerStatus) {
	fail, ok := in.StartErrors[c.Name]
	// If the start is not tried again, its error is not shown.
	if !ok || in.Terminal || !in.comes(c, g) {
		return
	}
	if end := st.State.Terminated; end != nil {
		if g == InitContainers && !podmeta.IsSidecar(c) && end.ExitCode == 0 {
			return // its success is shown, even if it will run again in a new sandbox
		}
		// The waiting state replaces the terminated one, which is kept here.
		st.LastTerminationState = st.State
	}
	st.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: fail.Reason, Message: fail.Message}}
}

// comes reports whether a container that does not run will get another instance, now or later.
func (in *Input) comes(c *v1.Container, g Group) bool {
	if o := in.Observed.Newest(c.Name); o != nil && o.State == observed.Running {
		return false
	}
	d := in.decision()
	list, acts := in.Pod.Spec.Containers, d.Regular
	switch g {
	case InitContainers:
		list, acts = in.Pod.Spec.InitContainers, d.Init
	case EphemeralContainers:
		return in.Observed.Newest(c.Name) == nil // never started again, whatever the policy
	}
	i := slices.IndexFunc(list, func(s v1.Container) bool { return s.Name == c.Name })
	return i >= 0 && acts[i].Comes()
}

// applyProbes sets Ready and Started. For ephemeral containers it sets neither, since the API has
// neither field for them.
func (in *Input) applyProbes(c *v1.Container, g Group, st *v1.ContainerStatus) {
	if g == EphemeralContainers {
		return
	}
	// A container that does not run has no probe results.
	st.Started, st.Ready = new(bool), false
	if st.State.Running != nil {
		id := BareID(st.ContainerID)
		*st.Started = c.StartupProbe == nil || in.Started != nil && in.Started(id)
		// A container is not ready before it has started (KEP-950).
		st.Ready = *st.Started
		if st.Ready && c.ReadinessProbe != nil {
			st.Ready = in.Ready != nil && in.Ready(id)
		}
	}
	// Init containers have no probes: they are ready when they have succeeded.
	if g == InitContainers && !podmeta.IsSidecar(c) {
		st.Started = new(bool)
		*st.Started = st.State.Running != nil
		st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
}
