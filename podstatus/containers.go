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

// of returns the group's containers and their statuses in st.
// The slices are the pod's and st's own, to be read only, but for the specs of
// ephemeral containers, which are made here.
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
	// Looked up once for all init containers.
	started := in.regularStarted()
	out := make([]v1.ContainerStatus, 0, len(specs))
	for i := range specs {
		c := &specs[i]
		var before *v1.ContainerStatus
		// By name: the status of an older version of the spec may have another
		// order.
		if j := slices.IndexFunc(old, func(s v1.ContainerStatus) bool { return s.Name == c.Name }); j >= 0 {
			before = &old[j]
		}
		st := in.containerStatus(c, g, before)
		if g == InitContainers && started && !in.restartingAll() && !podmeta.IsSidecar(c) && in.Observed.Newest(c.Name) == nil && st.State.Waiting != nil {
			// It must have succeeded, or no other would have been started;
			// its remains were cleaned away.
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

// lostInitMessage is the kubelet's, which its own node suite looks for.
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

// instances returns the newest container of that name and the one before it.
// Both are among the newest first; the one before supplies the last
// termination.
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

// containerStatus computes one container's status, but for probes.
func (in *Input) containerStatus(c *v1.Container, g Group, before *v1.ContainerStatus) v1.ContainerStatus {
	st := in.startingPoint(c, before)
	// Older instances than these two are history that the restart count alone
	// still shows.
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
		return st // it ended, whatever became of the runtime's memory since
	}
	// It ran, and nobody can say that it does: it counts as ended, and as one
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
		// Nothing of the past is to be carried over.
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
		st.LastTerminationState = v1.ContainerState{Terminated: takenEnd(before)} // by a restart of all that nobody saw
	}
	// Garbage collection removes dead instances; what was known of the last end
	// stays.
	if st.LastTerminationState.Terminated == nil {
		st.LastTerminationState = *before.LastTerminationState.DeepCopy()
	}
	// The runtime's count comes from annotations, which may be missing.
	st.RestartCount = max(st.RestartCount, before.RestartCount)
	return st
}

// startingPoint is a container's status before the runtime is looked at.
// An end that was seen stays until the runtime shows something newer.
func (in *Input) startingPoint(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	if before != nil && before.State.Terminated != nil {
		return *before.DeepCopy()
	}
	return in.waitingFor(c, before)
}

// waitingFor is the status of a container that is still to be made.
func (in *Input) waitingFor(c *v1.Container, before *v1.ContainerStatus) v1.ContainerStatus {
	// The reasons are the kubelet's, from before the first look at a container.
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
			st.State.Waiting = w.DeepCopy() // until it is made anew
		}
		st.RestartCount = before.RestartCount
		st.LastTerminationState = *before.LastTerminationState.DeepCopy()
		// The health of devices (KEP-4680) is filled in elsewhere, and would be
		// lost.
		for i := range before.AllocatedResourcesStatus {
			st.AllocatedResourcesStatus = append(st.AllocatedResourcesStatus, *before.AllocatedResourcesStatus[i].DeepCopy())
		}
	}
	return st
}

// vanished accounts for a container that ran and that the runtime has not any
// more. Its state stays waiting: the last termination keeps the pod from
// counting as pending.
func (in *Input) vanished(before *v1.ContainerStatus, st *v1.ContainerStatus) {
	// Only what ran can vanish without an end. One that was terminated before
	// shows that end, as with the kubelet.
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

// unknownEnd is the end of a container of which nobody knows how it ended. It
// has no end time.
func unknownEnd(id, message string, started metav1.Time) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{
		Reason: ReasonContainerStatusUnknown, Message: message, ExitCode: unknownExitCode,
		StartedAt: started, ContainerID: id,
	}
}

// fromRuntime lays what the runtime shows over st.
func (in *Input) fromRuntime(c *observed.Container, unknown bool, st *v1.ContainerStatus) {
	// From here st may still be the status of an earlier instance: what the
	// runtime does not show of this one is cleared.
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
	// Created: it is started a moment later, and has no reason to wait.
	default:
		st.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}
	}
}

// terminated is the end of an instance as the runtime shows it. A runtime that
// names no reason gets the kubelet's by the exit code.
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

// containerID puts the runtime's name before an ID that has none, as a scheme.
// The API wants type://id; clients take the part after it.
func (in *Input) containerID(id string) string {
	if id == "" || strings.Contains(id, "://") {
		return id
	}
	return cmp.Or(in.Runtime, "containerd") + "://" + id
}

// BareID is a container ID of a status as the runtime knows it.
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

// applyStartError shows why a container that should run does not.
func (in *Input) applyStartError(c *v1.Container, g Group, st *v1.ContainerStatus) {
	fail, ok := in.StartErrors[c.Name]
	// An error of a start that nobody repeats is over.
	if !ok || in.Terminal || !in.comes(c, g) {
		return
	}
	if end := st.State.Terminated; end != nil {
		if g == InitContainers && !podmeta.IsSidecar(c) && end.ExitCode == 0 {
			return // its success is what counts, also where it runs again in a new sandbox
		}
		// Its end would be out of sight while it waits.
		st.LastTerminationState = st.State
	}
	st.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: fail.Reason, Message: fail.Message}}
}

// comes reports whether an instance of a container that does not run is to be made, now or
// later.
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

// applyProbes sets Ready and Started.
// The API has neither field for ephemeral containers.
func (in *Input) applyProbes(c *v1.Container, g Group, st *v1.ContainerStatus) {
	if g == EphemeralContainers {
		return
	}
	// Probes cannot be asked about what does not run.
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
	// They have no probes; done is ready.
	if g == InitContainers && !podmeta.IsSidecar(c) {
		st.Started = new(bool)
		*st.Started = st.State.Running != nil
		st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
	}
}
