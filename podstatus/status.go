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
	// The first two are reasons to wait, of pods with and without init
	// containers; the others are reasons of ends.
	ReasonPodInitializing        = "PodInitializing"
	ReasonContainerCreating      = "ContainerCreating"
	ReasonContainerStatusUnknown = "ContainerStatusUnknown"
	ReasonCompleted              = "Completed"
	ReasonError                  = "Error"

	// unknownExitCode is 128 + SIGKILL: what a container that vanished is
	// taken to have ended with.
	unknownExitCode = 137
)

// Input is what a status is computed from. Only Pod is required.
type Input struct {
	// Pod is the spec to follow, with the status as others know it: the API
	// server's, or that of a file.
	Pod *v1.Pod
	// Allocated is the pod with the resources that the node has granted it,
	// which differ from those it asks for until a resize is decided on; nil
	// means Pod.
	Allocated *v1.Pod
	// Observed is what the runtime shows; nil means nothing.
	Observed *observed.Pod
	// Runtime is the runtime's name, which container IDs begin with;
	// containerd.
	Runtime string
	// Previous is the last status that was computed; nil means Pod.Status.
	Previous *v1.PodStatus
	// StartErrors has, by container name, why containers wait whose last start failed: Reason
	// and Message are those of their waiting states.
	StartErrors map[string]podlife.Cause
	// Terminal reports that no container will be started any more.
	Terminal bool
	// SandboxNotReady is why the pod has no usable sandbox at the moment, "" if it has
	// one: see podlife.SandboxOf.
	SandboxNotReady string
	// Resize are the conditions PodResizePending and PodResizeInProgress, each
	// at most once, as whoever decides on resizes holds them; without the
	// latter, what was granted is in force. Of one without a generation it is
	// the pod's; transition times are filled in.
	Resize []v1.PodCondition
	// RestartAll reports that all containers are being restarted by a rule of
	// one of them (KEP-5532): what the runtime has no more is coming back.
	RestartAll bool
	// HostIPs are the node's addresses, primary first.
	HostIPs []string
	// Ready and Started tell of a running container's probes, by container
	// ID; nil means that there are none, and that running is enough.
	Ready, Started func(containerID string) bool
	// Now is when conditions change that do; zero: when the runtime was asked
	// (Observed.ObservedAt), or else when the pod was created. If that is zero
	// too, what would have this time has none.
	Now time.Time
}

// now is the time of all transitions in one status. Without it conditions that
// change together would seem to have changed one after the other.
func (in *Input) now() time.Time {
	switch {
	case !in.Now.IsZero():
		return in.Now
	case in.Observed != nil && !in.Observed.ObservedAt.IsZero():
		return in.Observed.ObservedAt
	}
	return in.Pod.CreationTimestamp.Time
}

// moment is a time as statuses have it, in whole seconds; of no time none.
// The API has no fractions: with them a status read back would differ from the
// one written.
func moment(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// previous is the status to continue. It is read only.
func (in *Input) previous() *v1.PodStatus {
	if in.Previous != nil {
		return in.Previous
	}
	return &in.Pod.Status
}

// Of computes the whole status.
func Of(in Input) v1.PodStatus {
	// Abandoned starts count as containers that were never started, as in
	// podruntime's plans.
	in.Observed, in.Now = in.Observed.Settled(), in.now()
	prev := in.previous()
	status := v1.PodStatus{
		QOSClass:  podmeta.QOS(in.Pod),
		StartTime: startTime(prev, in.Now),
		// An older version of the pod may be looked at once more; the generation
		// never falls.
		ObservedGeneration:         max(in.Pod.Generation, prev.ObservedGeneration),
		NominatedNodeName:          prev.NominatedNodeName,
		InitContainerStatuses:      ContainerStatuses(in, InitContainers),
		ContainerStatuses:          ContainerStatuses(in, RegularContainers),
		EphemeralContainerStatuses: ContainerStatuses(in, EphemeralContainers),
	}
	t := tally{pod: in.Pod, restarting: in.restartingAll(), stranded: in.stranded()}
	// The phase is computed from the statuses just made, and the conditions from
	// all of it: the order matters.
	status.Phase = t.phase(&status, in.Terminal, in.sandboxActive())
	keepPhase(&in.Pod.Status, prev, &status)
	claims(&in.Pod.Status, &status)
	podResources(&in, prev, &status)
	addresses(&in, prev, &status)
	status.Conditions = Conditions(in, &status)
	return status
}

// keepPhase keeps a terminal phase, first the one that the world knows of, and
// the reason and the message of a phase that stays.
// A terminal phase is final: controllers may have made another pod in this
// one's place.
func keepPhase(known, prev, st *v1.PodStatus) {
	switch {
	case podmeta.IsTerminal(known.Phase):
		st.Phase = known.Phase
	case podmeta.IsTerminal(prev.Phase):
		st.Phase = prev.Phase
	}
	// Reason and message belong to a phase: those of another one would be wrong
	// by now.
	for _, old := range []*v1.PodStatus{prev, known} {
		if st.Phase != old.Phase {
			continue
		}
		st.Reason, st.Message = firstOf(st.Reason, old.Reason), firstOf(st.Message, old.Message)
	}
}

// claims copies what others say of the pod's resource claims.
// They are the scheduler's and the controllers', and would be removed if they
// were left out.
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

// startTime is when the node took over the pod: the first time ever given, or
// now.
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
		// A runtime that does not say which sandbox a container is in gets the
		// benefit of the doubt.
		if c := in.Observed.Newest(in.Pod.Spec.Containers[i].Name); c != nil && (c.SandboxID == "" || c.SandboxID == s.ID) {
			return true
		}
	}
	return false
}

// stranded reports whether the pod is over although some of its containers may never have
// begun, as one with policy Never that has lost its sandbox. With the kubelet such a pod is
// pending for ever.
func (in *Input) stranded() bool { return in.Pod.DeletionTimestamp == nil && in.decision().Over }

// decision is what is to become of the pod's containers, as podruntime has it. What probes
// have found does not matter: only containers that run end for it.
func (in *Input) decision() podlife.Decision {
	return podlife.Decide(podlife.Knowledge{Pod: in.Pod, Runtime: in.Observed})
}

// addresses fills in the addresses of the node and the pod. Those of a pod
// stay after its end, so that it can still be told which it had.
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

// withOtherFamily adds the first host address of the family that the one
// address in ips is not of. What is there already never changes.
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

// isIPv4 reports whether s is an IPv4 address; what is no address is not.
func isIPv4(s string) bool { return net.ParseIP(s).To4() != nil }
