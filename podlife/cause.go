package podlife

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// Kind is the kind of a [Cause]. The zero value is for causes of programs that embed this package,
// and for no cause: the other fields of the Cause then say all about it.
type Kind string

// Why a pod ends, is rejected or waits. The table below says what follows from each.
const (
	// Evicted means that the node is short of something that ending the pod frees.
	Evicted Kind = "Evicted"
	// OverLimit means that the pod used more local storage than its own limit.
	OverLimit Kind = "OverLimit"
	// Preempted means that the pod makes room for a critical one.
	Preempted Kind = "Preempted"
	// Shutdown means that the machine goes down.
	Shutdown Kind = "Shutdown"
	// DeadlineExceeded means that the pod's activeDeadlineSeconds are over.
	DeadlineExceeded Kind = "DeadlineExceeded"
	// VolumesExhausted means that the node cannot attach more volumes of a CSI driver.
	VolumesExhausted Kind = "VolumesExhausted"
	// Rejected means that the pod was never admitted. Reason says why.
	Rejected Kind = "Rejected"
	// Waits means that the pod is not admitted yet.
	Waits Kind = "Waits"
)

// Why a container ends although its pod goes on.
const (
	// Changed means that the spec defines another container than the one that runs.
	Changed Kind = "ContainerChanged"
	// LivenessFailed and StartupFailed mean that a probe failed. The probe may have a
	// grace period of its own (KEP-2238).
	LivenessFailed Kind = "LivenessProbe"
	StartupFailed  Kind = "StartupProbe"
	// StateUnknown means that the runtime cannot tell whether the container runs.
	StateUnknown Kind = "Unknown"
	// HookFailed means that the postStart hook failed.
	HookFailed Kind = "PostStartHookError"
	// Resized means that the container's resize policy wants a restart (KEP-1287).
	Resized Kind = "ResizeRequiresRestart"
	// Surplus means that the container runs beside a newer instance of itself.
	Surplus Kind = "SurplusInstance"
)

// Why a container waits to be started (HookFailed, above, is another such reason), or why a pod
// waits for its sandbox. Except for ImageFailed, each value is the reason of the container's
// waiting state.
const (
	// CrashLoop means that the container ended too often, or too soon.
	CrashLoop Kind = "CrashLoopBackOff"
	// ImageFailed means that the container's image could not be pulled. Reason says why.
	ImageFailed Kind = "ImageFailed"
	// ConfigFailed means that the runtime's configuration of the container could not be made from
	// the spec, or its files and mounts could not be made.
	ConfigFailed Kind = "CreateContainerConfigError"
	// CreateFailed and RunFailed mean that the runtime's call CreateContainer or StartContainer
	// failed.
	CreateFailed Kind = "CreateContainerError"
	RunFailed    Kind = "RunContainerError"
	// SandboxFailed means that the sandbox could not be made.
	SandboxFailed Kind = "CreatePodSandboxError"
)

// Cause is why a pod or a container ends, is rejected or waits. It is plain data. The
// zero Cause leaves the status alone and keeps the pod's own grace period.
//
// Its JSON is stored with statuses: fields may be added, and none may change.
type Cause struct {
	Kind Kind `json:"kind,omitempty"`
	// Reason is the reason of the status, such as OutOfcpu. If it is "", the kind's reason is
	// used.
	Reason string `json:"reason,omitempty"`
	// Message is the text for people. If it is "", the kind's message is used.
	Message string `json:"message,omitempty"`
	// At is when the cause arose. It is the transition time of DisruptionTarget.
	At time.Time `json:"at,omitzero"`
	// Grace is the grace period in seconds that the cause gives the pod or container. If Grace is
	// nil, the pod's own grace period is used. See [Grace] for which of several periods applies.
	Grace *int64 `json:"grace,omitempty"`
}

// effects says what a kind of cause does to the status, the events and the next life of a pod.
type effects struct {
	phase   v1.PodPhase // of the status; "" leaves the phase as it is
	reason  string
	message string
	prefix  string // prefix of the status's message
	event   string // type of the event; "" means that there is no event
	named   string // reason of the event; "" means the cause's reason
	says    words  // text of the event; nil means the cause's message
	// disrupts sets the condition DisruptionTarget (KEP-3329): the node ends the pod for the sake
	// of other pods. about is the condition's message. If about is "", the condition has the
	// message of the status.
	disrupts bool
	about    string
	// keepsSuccess leaves the phase of a pod that has succeeded as it is.
	keepsSuccess bool
	// evicts reports that the pod's volumes and other things on the node may be removed when the pod
	// has ended, although the pod is still wanted.
	evicts bool
	again  again
}

// words makes the message of an event about a container. If container is "", the event is about
// the pod. pod is the name of the pod in the kubelet's events.
type words func(c Cause, container, pod string) string

// after returns a function that puts prefix before the cause's message.
func after(prefix string) words {
	return func(c Cause, _, _ string) string { return prefix + c.Message }
}

// again says whether a static pod that ended begins again when the cause is over. No controller
// replaces a static pod.
type again uint8

const (
	never       again = iota
	unlessNever       // again unless the restart policy is Never
	always
)

// table has the effects of each kind. Reasons and texts are the kubelet's, since programs compare
// some of them. Metrics of evicted pods are not here: their label is the resource that the node was
// short of, which a cause does not have.
var table = map[Kind]effects{
	Evicted: {
		phase: v1.PodFailed, reason: "Evicted", event: v1.EventTypeWarning, disrupts: true, evicts: true, again: unlessNever,
	},
	// The pod is at fault itself, and not disrupted for others.
	OverLimit: {
		phase: v1.PodFailed, reason: "Evicted", event: v1.EventTypeWarning, evicts: true, again: unlessNever,
	},
	Preempted: {
		phase: v1.PodFailed, reason: "Preempting", message: "Preempted in order to admit critical pod", event: v1.EventTypeWarning,
		disrupts: true, about: "Pod was preempted by Kubelet to accommodate a critical pod.", evicts: true, again: unlessNever,
	},
	Shutdown: {
		phase: v1.PodFailed, reason: "Terminated", message: "Pod was terminated in response to imminent node shutdown.",
		disrupts: true, keepsSuccess: true, again: always,
	},
	DeadlineExceeded: {
		phase: v1.PodFailed, reason: "DeadlineExceeded", message: "Pod was active on the node longer than the specified deadline",
		event: v1.EventTypeNormal,
	},
	VolumesExhausted: {
		phase: v1.PodFailed, reason: "VolumeAttachmentLimitExceeded", event: v1.EventTypeWarning,
	},
	Rejected: {phase: v1.PodFailed, prefix: "Pod was rejected: ", event: v1.EventTypeWarning, again: always},
	Waits: {
		prefix: "Pod waits to be admitted: ", event: v1.EventTypeNormal, named: "AdmissionWaits",
		says: func(c Cause, _, _ string) string { return c.Reason + ": " + c.Message },
	},

	Changed:        {message: "definition changed"},
	LivenessFailed: {message: "failed liveness probe"},
	StartupFailed:  {message: "failed startup probe"},
	Resized:        {message: "resize requires restart"},

	CrashLoop: {
		reason: "CrashLoopBackOff", event: v1.EventTypeWarning, named: "BackOff",
		says: func(_ Cause, container, pod string) string {
			return "Back-off restarting failed container " + container + " in pod " + pod
		},
	},
	ImageFailed: {
		event: v1.EventTypeWarning, named: "Failed",
		says: func(c Cause, _, _ string) string { return "Error: " + c.Reason },
	},
	ConfigFailed: {reason: "CreateContainerConfigError", event: v1.EventTypeWarning, named: "Failed", says: after("Error: ")},
	CreateFailed: {reason: "CreateContainerError", event: v1.EventTypeWarning, named: "Failed", says: after("Error: ")},
	RunFailed:    {reason: "RunContainerError", event: v1.EventTypeWarning, named: "Failed", says: after("Error: ")},
	HookFailed: {
		reason: "PostStartHookError", event: v1.EventTypeWarning, named: "FailedPostStartHook",
		says: func(Cause, string, string) string { return "PostStartHook failed" },
	},
	SandboxFailed: {reason: "CreatePodSandboxError", event: v1.EventTypeWarning, named: "FailedCreatePodSandBox", says: after("Failed to create pod sandbox: ")},
}

// effects returns the effects of the cause's kind, with the Reason and Message of the cause if it
// has them. A cause with a reason and without a kind fails the pod.
func (c Cause) effects() effects {
	e := table[c.Kind]
	if c.Kind == "" && c.Reason != "" {
		e.phase, e.event = v1.PodFailed, v1.EventTypeWarning
	}
	if c.Reason != "" {
		e.reason = c.Reason
	}
	if c.Message != "" {
		e.message = c.Message
	}
	return e
}

// Shows reports whether the cause changes the status of a pod.
func (c Cause) Shows() bool {
	e := c.effects()
	return e.phase != "" || e.prefix != ""
}

// Apply writes the cause into a status. Lists in the status are replaced and not written to, so
// that a status may share them with others. A rejected pod loses its container statuses, since it
// never had containers.
func (c Cause) Apply(st *v1.PodStatus) {
	if !c.Shows() {
		return
	}
	e := c.effects()
	if e.phase != "" && !(e.keepsSuccess && st.Phase == v1.PodSucceeded) {
		st.Phase = e.phase
	}
	st.Reason, st.Message = e.reason, e.prefix+e.message
	if c.Kind == Rejected {
		st.ContainerStatuses, st.InitContainerStatuses, st.Conditions = nil, nil, nil
		st.AllocatedResources, st.Resources = nil, nil
	}
	if e.disrupts {
		about := e.about
		if about == "" {
			about = st.Message
		}
		st.Conditions = disrupted(st.Conditions, about, c.At)
	}
}

// disrupted returns a copy of conditions with the condition DisruptionTarget set.
func disrupted(conditions []v1.PodCondition, message string, at time.Time) []v1.PodCondition {
	next := v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, Message: message,
		LastTransitionTime: metav1.NewTime(at),
	}
	conditions = slices.Clone(conditions)
	i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
	if i < 0 {
		return append(conditions, next)
	}
	have := conditions[i]
	if have.Status == v1.ConditionTrue {
		next.LastTransitionTime = have.LastTransitionTime
	}
	next.ObservedGeneration, next.LastProbeTime = have.ObservedGeneration, have.LastProbeTime
	conditions[i] = next
	return conditions
}

// Reason returns the reason of a kind whose causes all have the same reason. For other kinds it
// returns "".
func (k Kind) Reason() string { return table[k].reason }

// Message returns the message of a kind whose causes all have the same message. For other kinds
// it returns "".
func (k Kind) Message() string { return table[k].message }

// Event returns the event that reports the cause for a pod. If there is no such event, eventType
// is "".
func (c Cause) Event() (eventType, reason, message string) { return c.ContainerEvent("", "") }

// ContainerEvent returns the event that reports the cause for a container of a pod. If there is
// no such event, eventType is "".
func (c Cause) ContainerEvent(container, pod string) (eventType, reason, message string) {
	e := c.effects()
	reason, message = e.reason, e.message
	if e.named != "" {
		reason = e.named
	}
	if e.says != nil {
		message = e.says(c, container, pod)
	}
	return e.event, reason, message
}

// Evicts reports whether the pod's volumes and other things on the node may be removed when the pod
// has ended, although the pod is still wanted.
func (c Cause) Evicts() bool { return c.effects().evicts }

// Returns reports whether a static pod that ended for this cause may begin again under its UID when
// the cause is over. Other pods do not: their controller makes another pod. After a cause without a
// kind any pod may begin again.
func (c Cause) Returns(pod *v1.Pod) bool {
	e := c.effects()
	switch {
	case c.Kind == "":
		return true
	case !podmeta.IsStatic(pod) || e.again == never:
		return false
	default:
		return e.again == always || pod.Spec.RestartPolicy != v1.RestartPolicyNever
	}
}

// Ended reports whether a pod whose status has this phase and cause has ended. A rejected pod has
// not ended: it never began.
func Ended(phase v1.PodPhase, cause Cause) bool {
	return podmeta.IsTerminal(phase) && cause.Kind != Rejected
}

// EndedByNode reports whether a status says that the node ended the pod for the sake of other pods
// (KEP-3329).
func EndedByNode(st *v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
	})
}

// CauseOf reads the cause back from a status to which this agent or a kubelet has applied it (see
// [Cause.Apply]). Its At and Grace are not known. ok is false if the pod has not ended, or ended
// by itself, for example because it succeeded; Reason and Message are then those of the status.
func CauseOf(st *v1.PodStatus) (c Cause, ok bool) {
	c = Cause{Reason: st.Reason, Message: st.Message}
	trimmed := func(k Kind) bool {
		text, has := strings.CutPrefix(st.Message, table[k].prefix)
		if has {
			c.Kind, c.Message = k, text
		}
		return has
	}
	failed := st.Phase == v1.PodFailed
	switch {
	case failed && len(st.ContainerStatuses) == 0 && trimmed(Rejected):
	case !podmeta.IsTerminal(st.Phase) && trimmed(Waits):
	case failed && st.Reason == Evicted.Reason():
		if c.Kind = OverLimit; EndedByNode(st) {
			c.Kind = Evicted
		}
	case failed:
		for _, k := range []Kind{Preempted, Shutdown, DeadlineExceeded, VolumesExhausted} {
			if st.Reason == k.Reason() {
				c.Kind = k
			}
		}
	}
	return c, c.Kind != ""
}
