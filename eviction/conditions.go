package eviction

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

// Conditions of the node, and their effects: taints and admission of pods. Reasons and messages
// are the kubelet's.

// pressure is the state of one condition.
type pressure struct {
	on    bool
	since time.Time // shown only
}

// conditionTypes returns the conditions of the signals of package rank, in the order of display.
// Each condition has a lane. The conditions of Config.Signals follow after them.
func conditionTypes() []v1.NodeConditionType {
	return []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}
}

// words has the kubelet's reasons and messages for a condition.
type words struct{ reasonOn, textOn, reasonOff, textOff string }

// words returns the kubelet's reasons and messages for the lane's condition. The texts name the
// kubelet because tools search for them.
func (l *lane) words() words {
	if l.own != nil {
		return words{"SignalIsLow", string(l.own.Name) + " is below its threshold", "SignalIsSufficient", string(l.own.Name) + " is sufficient"}
	}
	switch l.condition {
	case v1.NodeMemoryPressure:
		return words{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"}
	case v1.NodeDiskPressure:
		return words{"KubeletHasDiskPressure", "kubelet has disk pressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"}
	default:
		return words{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "KubeletHasSufficientPID", "kubelet has sufficient PID available"}
	}
}

// setPressure sets a condition. Only the condition's lane calls it. The first call sets the
// transition time even if the condition is false.
func (m *Manager) setPressure(c v1.NodeConditionType, on bool, now time.Time) {
	m.mu.Lock()
	was, known := m.pressure[c]
	if !known || was.on != on {
		m.pressure[c] = pressure{on, now}
	}
	// Changed may ask for the conditions, so that it is called without the lock.
	m.mu.Unlock()
	if !known || was.on != on {
		m.met.pressure(c, on) // at the first look too: no series means that nobody looks
	}
	if was.on == on {
		return
	}
	m.cfg.Log.Info("pressure changed", zap.String("condition", string(c)), zap.Bool("on", on))
	m.cfg.Changed()
}

// UnderPressure reports whether a pressure condition is true: while one of its thresholds is
// met, and for Config.Transition afterwards.
func (m *Manager) UnderPressure(c v1.NodeConditionType) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pressure[c].on
}

// Conditions returns the node's pressure conditions, with the kubelet's reasons and without a
// heartbeat time. The caller owns the slice.
func (m *Manager) Conditions() []v1.NodeCondition {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]v1.NodeCondition, 0, len(m.lanes)+1) // callers often add one
	for _, l := range m.lanes {
		w, p := l.words(), m.pressure[l.condition]
		n := v1.NodeCondition{Type: l.condition, Status: v1.ConditionFalse, Reason: w.reasonOff, Message: w.textOff}
		if p.on {
			n.Status, n.Reason, n.Message = v1.ConditionTrue, w.reasonOn, w.textOn
		}
		if !p.since.IsZero() {
			n.LastTransitionTime = metav1.NewTime(p.since)
		}
		out = append(out, n)
	}
	return out
}

// on returns the lanes whose conditions are true.
func (m *Manager) on() []*lane {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.lanes), func(l *lane) bool { return !m.pressure[l.condition].on })
}

// Rejection has the reason and message with which a pod is rejected.
type Rejection struct{ Reason, Message string }

// Admit returns nil if the pod may start, or else why it must not start while the node is under
// pressure. Critical pods are always admitted. If memory is the only shortage, pods that request
// memory or tolerate the taint of memory pressure are admitted.
func (m *Manager) Admit(pod *v1.Pod) *Rejection {
	on := m.on()
	// A critical pod may be needed to end the shortage.
	if len(on) == 0 || m.cfg.Critical(pod) {
		return nil
	}
	// Pods of class BestEffort request no memory and would be the next to be
	// evicted. With disk or processes short, any new pod takes some of them.
	if len(on) == 1 && on[0].condition == v1.NodeMemoryPressure {
		if podmeta.QOS(pod) != v1.PodQOSBestEffort || toleratesMemory(pod) {
			return nil
		}
	}
	var holds []v1.NodeConditionType
	for _, l := range on {
		holds = append(holds, l.condition)
	}
	return &Rejection{Reason: podlife.Evicted.Reason(), Message: fmt.Sprintf("The node had condition: %v. ", holds)}
}

// toleratesMemory reports whether the pod tolerates the taint of memory pressure, by the API's
// rules: an empty key or effect matches all.
func toleratesMemory(pod *v1.Pod) bool {
	taint, _ := rank.Taint(v1.NodeMemoryPressure)
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		switch t.Operator {
		case v1.TolerationOpExists:
			return true
		case v1.TolerationOpEqual, "":
			return t.Value == taint.Value
		default:
			return false
		}
	})
}
