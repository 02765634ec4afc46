package podstatus

import (
	"net"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// Reasons and codes that the kubelet gives where the runtime gives none.
const (
	// ReasonPodInitializing and ReasonContainerCreating are waiting reasons, of pods with and
	// without init containers. The others are reasons of terminated states.
	ReasonPodInitializing        = "PodInitializing"
	ReasonContainerCreating      = "ContainerCreating"
	ReasonContainerStatusUnknown = "ContainerStatusUnknown"
	ReasonCompleted              = "Completed"
	ReasonError                  = "Error"

	// unknownExitCode is 128 + SIGKILL, the exit code of a container whose end was not
	// seen.
	unknownExitCode = 137
)

// Input has the facts from which a status is computed. Only Pod is required.
type Input struct {
	// Pod is the pod as its source has it: the wanted spec and, from an API server, the
	// published status.
	Pod *v1.Pod
	// Allocated is the pod with its allocated resources, which differ from the spec's until the
	// node has accepted a resize. If it is nil, Pod is used.
	Allocated *v1.Pod
	// Observed is the pod's state in the runtime. It is nil if the runtime has no sandbox and no
	// container of the pod.
	Observed *observed.Pod
	// Runtime is the runtime's name, which is the type in container IDs. The default is
	// containerd.
	Runtime string
	// Previous is the last status that was computed. If it is nil, Pod.Status is used.
	Previous *v1.PodStatus
	// StartErrors says why the last start of a container failed, by container name. Its Reason
	// and Message become those of the container's waiting state.
	StartErrors map[string]podlife.Cause
	// Terminal reports that no container will be started any more.
	Terminal bool
	// SandboxNotReady is the reason why the pod has no usable sandbox, or "" if the pod has one.
	// See podlife.SandboxOf.
	SandboxNotReady string
	// Resize has the conditions PodResizePending and PodResizeInProgress, each at most once.
	// Without PodResizeInProgress, the allocated resources are in effect. A condition without a
	// generation gets the pod's. Of sets the transition times.
	Resize []v1.PodCondition
	// RestartAll reports that all containers are being restarted by a rule of one of
	// them (KEP-5532): missing containers will be created again.
	RestartAll bool
	// HostIPs are the node's addresses, primary first.
	HostIPs []string
	// Ready and Started return the results of a running container's probes, by container ID. If a
	// function is nil, every running container counts as ready, or as started.
	Ready, Started func(containerID string) bool
	// Now is the transition time of changed conditions. If it is zero, it is
	// Observed.ObservedAt, or else the pod's creation time. If all are zero, the
	// transition times are zero.
	Now time.Time
}

// now returns the one transition time for all changes in a status.
func (in *Input) now() time.Time {
	switch {
	case !in.Now.IsZero():
		return in.Now
	case in.Observed != nil && !in.Observed.ObservedAt.IsZero():
		return in.Observed.ObservedAt
	}
	return in.Pod.CreationTimestamp.Time
}

// moment converts a time for a status. It is cut to whole seconds, as in the API:
// otherwise a status that was read back would differ. A zero time stays zero.
func moment(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// previous returns Previous, or else the pod's status. Do not change it.
func (in *Input) previous() *v1.PodStatus {
	if in.Previous != nil {
		return in.Previous
	}
	return &in.Pod.Status
}

// Of computes the whole status.
func Of(in Input) v1.PodStatus {
	// Containers whose start was abandoned count as never started, as in podruntime's
	// plans.
	in.Observed, in.Now = in.Observed.Settled(), in.now()
	prev := in.previous()
	status := v1.PodStatus{
		QOSClass:  podmeta.QOS(in.Pod),
		StartTime: startTime(prev, in.Now),
		// The pod may be an older version: the generation never decreases.
		ObservedGeneration:         max(in.Pod.Generation, prev.ObservedGeneration),
		NominatedNodeName:          prev.NominatedNodeName,
		InitContainerStatuses:      ContainerStatuses(in, InitContainers),
		ContainerStatuses:          ContainerStatuses(in, RegularContainers),
		EphemeralContainerStatuses: ContainerStatuses(in, EphemeralContainers),
	}
	t := tally{pod: in.Pod, restarting: in.restartingAll(), stranded: in.stranded()}
	// The phase depends on the container statuses, and the conditions on both.
	status.Phase = t.phase(&status, in.Terminal, in.sandboxActive())
	keepPhase(&in.Pod.Status, prev, &status)
	claims(&in.Pod.Status, &status)
	podResources(&in, prev, &status)
	addresses(&in, prev, &status)
	status.Conditions = Conditions(in, &status)
	return status
}

// keepPhase sets a terminal phase in st if known, the published status, has one, or else if prev
// has one: a terminal phase never changes, since a controller may have replaced the pod already.
// If the phase is unchanged, reason and message are kept.
func keepPhase(known, prev, st *v1.PodStatus) {
	switch {
	case podmeta.IsTerminal(known.Phase):
		st.Phase = known.Phase
	case podmeta.IsTerminal(prev.Phase):
		st.Phase = prev.Phase
	}
	// Reason and message are kept only for the same phase.
	for _, old := range []*v1.PodStatus{prev, known} {
		if st.Phase != old.Phase {
			continue
		}
		st.Reason, st.Message = firstOf(st.Reason, old.Reason), firstOf(st.Message, old.Message)
	}
}

// claims copies the statuses of the pod's resource claims, which the scheduler and controllers
// write. Without the copy, publishing the status would remove them.
func claims(known, st *v1.PodStatus) {
	for i := range known.ResourceClaimStatuses {
		st.ResourceClaimStatuses = append(st.ResourceClaimStatuses, *known.ResourceClaimStatuses[i].DeepCopy())
	}
	for i := range known.NodeAllocatableResourceClaimStatuses {
		st.NodeAllocatableResourceClaimStatuses = append(st.NodeAllocatableResourceClaimStatuses,
			*known.NodeAllocatableResourceClaimStatuses[i].DeepCopy())
	}
	st.ExtendedResourceClaimStatus = known.ExtendedResourceClaimStatus.DeepCopy()
}

// startTime returns the time at which the node first saw the pod: the start time of prev, or now if
// prev has none.
func startTime(prev *v1.PodStatus, now time.Time) *metav1.Time {
	if prev.StartTime != nil && !prev.StartTime.IsZero() {
		return prev.StartTime.DeepCopy()
	}
	if now.IsZero() {
		return nil
	}
	t := moment(now)
	return &t
}

// sandboxActive reports whether a regular container was started in the current
// sandbox: then a sidecar that is not ready does not make the pod pending.
func (in *Input) sandboxActive() bool {
	s := in.Observed.NewestSandbox()
	if s == nil {
		return false
	}
	for i := range in.Pod.Spec.Containers {
		// If the runtime does not report the container's sandbox, it counts as the
		// current one.
		if c := in.Observed.Newest(in.Pod.Spec.Containers[i].Name); c != nil && (c.SandboxID == "" || c.SandboxID == s.ID) {
			return true
		}
	}
	return false
}

// stranded reports whether the pod has ended although some of its containers may never have
// started. An example is a pod with restart policy Never that has lost its sandbox. With the
// kubelet such a pod is pending for ever.
func (in *Input) stranded() bool { return in.Pod.DeletionTimestamp == nil && in.decision().Over }

// decision returns the decision that podruntime makes about the pod's containers, without results
// of probes: these only end containers that run.
func (in *Input) decision() podlife.Decision {
	return podlife.Decide(podlife.Knowledge{Pod: in.Pod, Runtime: in.Observed})
}

// addresses sets the addresses of the node and the pod in st. The addresses of a pod stay after its
// end, so that users can still see them.
func addresses(in *Input, prev *v1.PodStatus, st *v1.PodStatus) {
	if len(in.HostIPs) > 0 {
		// The primary one is in both fields, as the API asks for.
		st.HostIP = in.HostIPs[0]
		for _, ip := range in.HostIPs {
			st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
		}
	}
	var ips []string
	switch {
	// Set once and kept, also when the node's address changes, as with the
	// kubelet.
	case in.Pod.Spec.HostNetwork:
		for _, ip := range prev.PodIPs {
			ips = append(ips, ip.IP)
		}
		if len(ips) == 0 && len(in.HostIPs) > 0 {
			ips = append(ips, in.HostIPs[0])
		}
		ips = withOtherFamily(ips, in.HostIPs)
	default:
		// The family of the node's primary address comes first.
		ips, _ = observed.Addresses(in.Observed.IPs(), st.HostIP)
		// A sandbox that runs without an address is about to be replaced: its old
		// one is not kept.
		if s := in.Observed.NewestSandbox(); len(ips) == 0 && (s == nil || s.State != observed.Running) {
			st.PodIP, st.PodIPs = prev.PodIP, slices.Clone(prev.PodIPs)
		}
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		st.PodIP = ips[0]
	}
}

// withOtherFamily adds a second address to ips if it has exactly one: the first address of hosts
// that is of the other IP family. The existing address never changes.
func withOtherFamily(ips, hosts []string) []string {
	if len(ips) != 1 {
		return ips
	}
	for _, h := range hosts {
		if isIPv4(h) != isIPv4(ips[0]) {
			return append(ips, h)
		}
	}
	return ips
}

// isIPv4 reports whether s is an IPv4 address. It returns false for text that is no address.
func isIPv4(s string) bool { return net.ParseIP(s).To4() != nil }
