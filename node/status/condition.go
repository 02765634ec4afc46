package status

import (
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The texts of conditions and the reasons of events are the kubelet's: controllers
// and dashboards use them.

// statusPressure has the texts of a condition for both of its statuses.
type statusPressure struct {
	kind                  v1.NodeConditionType
	bad, good             string // reasons
	badText, goodText     string
	badEvent, goodEventOf string
}

var (
	memoryPressure = statusPressure{
		v1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory",
		"kubelet has insufficient memory available", "kubelet has sufficient memory available",
		"NodeHasInsufficientMemory", "NodeHasSufficientMemory",
	}
	diskPressure = statusPressure{
		v1.NodeDiskPressure, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure",
		"kubelet has disk pressure", "kubelet has no disk pressure",
		"NodeHasDiskPressure", "NodeHasNoDiskPressure",
	}
	pidPressure = statusPressure{
		v1.NodePIDPressure, "KubeletHasInsufficientPID", "KubeletHasSufficientPID",
		"kubelet has insufficient PID available", "kubelet has sufficient PID available",
		"NodeHasInsufficientPID", "NodeHasSufficientPID",
	}
)

// set sets the heartbeat time and, if the status has changed, the other fields. A missing
// condition counts as Unknown, so its first status is a change. Without a change the transition
// time stays, since the node lifecycle controller measures from it.
func (p statusPressure) set(node *v1.Node, holds bool, now metav1.Time) []Event {
	c := condition(node, p.kind)
	c.LastHeartbeatTime = now
	status, reason, text, event := v1.ConditionFalse, p.good, p.goodText, p.goodEventOf
	if holds {
		status, reason, text, event = v1.ConditionTrue, p.bad, p.badText, p.badEvent
	}
	// Reason and message are kept too, as in the kubelet.
	if c.Status == status {
		return nil
	}
	c.Status, c.Reason, c.Message, c.LastTransitionTime = status, reason, text, now
	return []Event{statusEvent(node.Name, event)}
}

// condition returns a condition, and adds it as Unknown if it is missing. The
// pointer is valid until the next condition is added.
func condition(node *v1.Node, kind v1.NodeConditionType) *v1.NodeCondition {
	all := &node.Status.Conditions
	if i := indexOf(*all, kind); i >= 0 {
		return &(*all)[i]
	}
	*all = append(*all, v1.NodeCondition{Type: kind, Status: v1.ConditionUnknown})
	return &(*all)[len(*all)-1]
}

// indexOf returns the position of a condition, or -1.
func indexOf(all []v1.NodeCondition, kind v1.NodeConditionType) int {
	return slices.IndexFunc(all, func(c v1.NodeCondition) bool { return c.Type == kind })
}

// statusEvent returns the event of a transition, in the kubelet's words.
func statusEvent(node, what string) Event {
	return Event{v1.EventTypeNormal, what, "Node " + node + " status is now: " + what}
}

// setReady writes the condition Ready. It returns an event when an existing condition changes,
// and none for the first condition. Unlike the messages of pressures, the message of Ready
// changes with the reasons.
func setReady(node *v1.Node, in *Inputs, now metav1.Time) []Event {
	want := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	event := "NodeReady"
	if text := in.notReady(node.Status.Capacity); text != "" {
		want.Status, want.Reason, want.Message, event = v1.ConditionFalse, "KubeletNotReady", text, "NodeNotReady"
	}
	// Soft requirements change the message and not the status.
	if len(in.Warnings) > 0 {
		want.Message += ". WARNING: " + aggregate(in.Warnings)
	}
	// The first Ready of a node is no transition.
	i := indexOf(node.Status.Conditions, v1.NodeReady)
	if i < 0 {
		node.Status.Conditions = append(node.Status.Conditions, want)
		return nil
	}
	was := &node.Status.Conditions[i]
	if was.Status == v1.ConditionTrue && in.begins(node.Status.Capacity) {
		was.LastHeartbeatTime = now
		return nil
	}
	if was.Status == want.Status {
		want.LastTransitionTime = was.LastTransitionTime
		*was = want
		return nil
	}
	*was = want
	return []Event{statusEvent(node.Name, event)}
}

// begins reports whether the agent's own checks, just after its start, are the only reason why the
// node is not ready. Otherwise each restart of the agent would make the node and its pods not ready
// for a moment.
func (in *Inputs) begins(capacity v1.ResourceList) bool {
	rest := *in
	rest.Problems.Runtime = nil
	return in.Problems.Beginning && rest.notReady(capacity) == ""
}

// notReady returns the texts of all problems in a fixed order, or "" if the node is ready. In a
// varying order, the status would change each time and be written to the API server.
func (in *Inputs) notReady(capacity v1.ResourceList) string {
	var texts []string
	for _, err := range []error{in.Problems.Runtime, in.Problems.Network, in.Problems.Storage, in.Problems.Shutdown} {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	// A node without these counts cannot be scheduled to at all.
	needed := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if in.LocalStorage {
		needed = append(needed, v1.ResourceEphemeralStorage)
	}
	var missing []string
	for _, name := range needed {
		if _, ok := capacity[name]; !ok {
			missing = append(missing, string(name))
		}
	}
	if len(missing) > 0 {
		texts = append(texts, "missing node capacity for resources: "+strings.Join(missing, ", "))
	}
	return aggregate(texts)
}

// aggregate writes one text plainly and several as [a, b], each once. The form is
// that of k8s.io/apimachinery's aggregate errors, as the kubelet shows them.
func aggregate(texts []string) string {
	var once []string
	for _, t := range texts {
		if !slices.Contains(once, t) {
			once = append(once, t)
		}
	}
	switch len(once) {
	case 0:
		return ""
	case 1:
		return once[0]
	}
	return "[" + strings.Join(once, ", ") + "]"
}

// Errors of a runtime, with the kubelet's texts.
var (
	errNeverSeen      = errors.New("container runtime status check may not have completed yet")
	errRuntimeDown    = errors.New("container runtime is down")
	errNetworkUnknown = errors.New("network state unknown")
)

// runtimeErr returns the problem of a runtime: the age of its last good answer, the failures of
// health checks, and its own condition. A runtime that has answered
// once has the whole runtimeGrace. A runtime that has never answered has none, since no pods were
// started. condition is the runtime's text, or "" if its condition is met.
func runtimeErr(lastGood, now time.Time, unhealthy []string, condition string) error {
	var texts []string
	switch {
	case lastGood.IsZero():
		texts = append(texts, errNeverSeen.Error())
	// At exactly the grace period the runtime counts as down: pollWait schedules the next check for
	// that moment.
	case now.Sub(lastGood) >= runtimeGrace:
		texts = append(texts, errRuntimeDown.Error())
	}
	texts = append(texts, unhealthy...)
	if condition != "" {
		texts = append(texts, condition)
	}
	if text := aggregate(texts); text != "" {
		return errors.New(text)
	}
	return nil
}
