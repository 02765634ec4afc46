package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	t0 = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	t1 = metav1.NewTime(t0.Add(time.Hour))
)

func reasons(evs []Event) string {
	var out []string
	for _, e := range evs {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " ")
}

func TestPressure(t *testing.T) {
	for _, p := range []statusPressure{memoryPressure, diskPressure, pidPressure} {
		for _, tc := range []struct {
			name    string
			before  v1.ConditionStatus // "": not there
			holds   bool
			want    v1.ConditionStatus
			changed bool
		}{
			{"new and well", "", false, v1.ConditionFalse, true},
			{"new and bad", "", true, v1.ConditionTrue, true},
			{"turns bad", v1.ConditionFalse, true, v1.ConditionTrue, true},
			{"recovers", v1.ConditionTrue, false, v1.ConditionFalse, true},
			{"stays bad", v1.ConditionTrue, true, v1.ConditionTrue, false},
			{"stays well", v1.ConditionFalse, false, v1.ConditionFalse, false},
		} {
			t.Run(string(p.kind)+" "+tc.name, func(t *testing.T) {
				node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
				if tc.before != "" {
					node.Status.Conditions = []v1.NodeCondition{{Type: p.kind, Status: tc.before, Reason: "R", Message: "M", LastTransitionTime: t0, LastHeartbeatTime: t0}}
				}
				events := p.set(node, tc.holds, t1)
				want := v1.NodeCondition{Type: p.kind, Status: tc.want, Reason: "R", Message: "M", LastTransitionTime: t0, LastHeartbeatTime: t1}
				event := ""
				if tc.changed {
					want.Reason, want.Message, event = p.good, p.goodText, p.goodEventOf
					if tc.holds {
						want.Reason, want.Message, event = p.bad, p.badText, p.badEvent
					}
					want.LastTransitionTime = t1
				}
				if got := node.Status.Conditions[0]; got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if reasons(events) != event {
					t.Errorf("events %v, want %q", events, event)
				}
			})
		}
	}
}

func TestReady(t *testing.T) {
	full := list("cpu=1 memory=1 pods=1 ephemeral-storage=1")
	bad := errors.New("bad")
	for _, tc := range []struct {
		name     string
		before   v1.ConditionStatus
		problems Problems
		warnings []string
		capacity v1.ResourceList
		storage  bool
		want     v1.ConditionStatus
		message  string
		event    string
	}{
		{name: "new", want: v1.ConditionTrue, message: "kubelet is posting ready status"},
		{name: "new and not", problems: Problems{Runtime: bad}, want: v1.ConditionFalse, message: "bad"},
		{name: "stays", before: v1.ConditionTrue, want: v1.ConditionTrue, message: "kubelet is posting ready status"},
		{name: "becomes ready", before: v1.ConditionFalse, want: v1.ConditionTrue, message: "kubelet is posting ready status", event: "NodeReady"},
		{name: "was unknown", before: v1.ConditionUnknown, want: v1.ConditionTrue, message: "kubelet is posting ready status", event: "NodeReady"},
		{name: "becomes not", before: v1.ConditionTrue, problems: Problems{Network: errors.New("net")}, want: v1.ConditionFalse, message: "net", event: "NodeNotReady"},
		{name: "stays not", before: v1.ConditionFalse, problems: Problems{Network: errors.New("net")}, want: v1.ConditionFalse, message: "net"},
		{name: "storage", problems: Problems{Storage: errors.New("CSINode is not yet initialized")}, want: v1.ConditionFalse, message: "CSINode is not yet initialized"},
		{name: "shutdown", problems: Problems{Shutdown: errors.New("node is shutting down")}, want: v1.ConditionFalse, message: "node is shutting down"},
		{name: "several, in order", problems: Problems{Shutdown: errors.New("d"), Storage: errors.New("c"), Network: errors.New("b"), Runtime: errors.New("a")}, want: v1.ConditionFalse, message: "[a, b, c, d]"},
		{name: "the same twice", problems: Problems{Network: bad, Runtime: bad}, want: v1.ConditionFalse, message: "bad"},
		{name: "capacity", capacity: list("cpu=1"), want: v1.ConditionFalse, message: "missing node capacity for resources: memory, pods"},
		{name: "no storage, counted", capacity: list("cpu=1 memory=1 pods=1"), storage: true, want: v1.ConditionFalse, message: "missing node capacity for resources: ephemeral-storage"},
		{name: "no storage, not counted", capacity: list("cpu=1 memory=1 pods=1"), want: v1.ConditionTrue, message: "kubelet is posting ready status"},
		{name: "warning", warnings: []string{"w"}, want: v1.ConditionTrue, message: "kubelet is posting ready status. WARNING: w"},
		{name: "warnings, not ready", problems: Problems{Runtime: bad}, warnings: []string{"v", "w"}, want: v1.ConditionFalse, message: "bad. WARNING: [v, w]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if node.Status.Capacity = tc.capacity; tc.capacity == nil {
				node.Status.Capacity = full
			}
			if tc.before != "" {
				node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: tc.before, Reason: "R", Message: "M", LastTransitionTime: t0, LastHeartbeatTime: t0}}
			}
			events := setReady(node, &Inputs{Problems: tc.problems, Warnings: tc.warnings, LocalStorage: tc.storage}, t1)
			want := v1.NodeCondition{Type: v1.NodeReady, Status: tc.want, Reason: "KubeletReady", Message: tc.message, LastHeartbeatTime: t1, LastTransitionTime: t1}
			if tc.want == v1.ConditionFalse {
				want.Reason = "KubeletNotReady"
			}
			if tc.before == tc.want {
				want.LastTransitionTime = t0
			}
			if got := node.Status.Conditions[0]; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if reasons(events) != tc.event {
				t.Errorf("events %v, want %q", events, tc.event)
			}
			for _, e := range events {
				if e.Type != v1.EventTypeNormal || e.Message != "Node n status is now: "+e.Reason {
					t.Errorf("event %+v", e)
				}
			}
		})
	}
}

func TestRuntimeErr(t *testing.T) {
	now := t1.Time
	for _, tc := range []struct {
		name      string
		lastGood  time.Time
		unhealthy []string
		condition string
		want      string
	}{
		{"never", time.Time{}, nil, "", "container runtime status check may not have completed yet"},
		{"just now", now, nil, "", ""},
		{"29s ago", now.Add(-29 * time.Second), nil, "", ""},
		{"30s ago", now.Add(-30 * time.Second), nil, "", "container runtime is down"},
		{"sick", now, []string{"PLEG is not healthy: x"}, "", "PLEG is not healthy: x"},
		{"all", now.Add(-time.Hour), []string{"PLEG is not healthy: x"}, "RuntimeReady=false", "[container runtime is down, PLEG is not healthy: x, RuntimeReady=false]"},
	} {
		err := runtimeErr(tc.lastGood, now, tc.unhealthy, tc.condition)
		if text := ""; err != nil && err.Error() != tc.want || err == nil && tc.want != text {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestSchedulable(t *testing.T) {
	seen, node := &Seen{}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	for i, step := range []struct {
		cordoned bool
		want     string
	}{{false, ""}, {true, "NodeNotSchedulable"}, {true, ""}, {false, "NodeSchedulable"}, {false, ""}} {
		node.Spec.Unschedulable = step.cordoned
		if got := reasons(seen.schedulable(node)); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
	node.Spec.Unschedulable = true
	if got := reasons((&Seen{}).schedulable(node)); got != "NodeNotSchedulable" {
		t.Errorf("an agent that starts on a cordoned node: %q", got)
	}
}
