package statusmgr

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestSameStatus(t *testing.T) {
	cond := func(c v1.PodCondition) v1.PodStatus { return v1.PodStatus{Conditions: []v1.PodCondition{c}} }
	ready := cond(v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, Reason: "r", Message: "m"})
	with := func(change func(c *v1.PodCondition)) v1.PodStatus {
		st := *ready.DeepCopy()
		change(&st.Conditions[0])
		return st
	}
	claim := "claim"
	for i, tc := range []struct {
		a, b v1.PodStatus
		same bool
	}{
		{ready, ready, true},
		{ready, v1.PodStatus{}, false},
		{ready, with(func(c *v1.PodCondition) { c.Status = v1.ConditionFalse }), false},
		{ready, with(func(c *v1.PodCondition) { c.Reason = "" }), false},
		{ready, with(func(c *v1.PodCondition) { c.Message = "" }), false},
		{ready, with(func(c *v1.PodCondition) { c.LastProbeTime.Time = time.Now() }), true},
		{ready, with(func(c *v1.PodCondition) { c.ObservedGeneration = 9 }), true},
		{v1.PodStatus{}, cond(v1.PodCondition{Type: "foreign", Status: v1.ConditionTrue}), true},
		{v1.PodStatus{}, cond(v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}), false},
		{v1.PodStatus{}, v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: &claim}}}, true},
		{v1.PodStatus{}, v1.PodStatus{ObservedGeneration: 1}, false},
		{v1.PodStatus{}, v1.PodStatus{Message: "m"}, false},
		{v1.PodStatus{}, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{}}, true},
	} {
		if got := sameStatus(&tc.a, &tc.b); got != tc.same {
			t.Errorf("row %d: same %v, want %v", i, got, tc.same)
		}
		if got := sameStatus(&tc.b, &tc.a); got != tc.same {
			t.Errorf("row %d, the other way round: same %v, want %v", i, got, tc.same)
		}
	}
}

func TestTerminatedStatus(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	regular := []v1.Container{{Name: "i"}, {Name: "j"}, {Name: "k"}}
	side := []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}}
	yes := true
	var (
		plain   = v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
		runs    = v1.ContainerStatus{Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
		ended   = func(code int32) v1.ContainerStatus { return v1.ContainerStatus{State: end(code)} }
		waitsBy = func(code int32) v1.ContainerStatus {
			s := plain
			s.LastTerminationState = end(code)
			return s
		}
	)
	type list = []v1.ContainerStatus
	for _, tc := range []struct {
		name string
		init []v1.Container
		was  list // of the init containers, then of the regular one
		want string
	}{
		{"an end stays", nil, list{ended(2)}, "2"},
		{"running", nil, list{runs}, "137"},
		{"waiting after an end", nil, list{waitsBy(2)}, "137 after 2"},
		{"plain waiting", nil, list{plain}, "137"},
		{"no state", nil, list{{}}, "137"},
		{"not initialized", regular, list{plain, plain, plain, plain}, "137 waits waits waits"},
		{"the first runs", regular, list{runs, plain, plain, plain}, "137 waits waits waits"},
		{"gaps are filled, later ones wait", regular, list{plain, ended(0), plain, plain}, "137 0 waits waits"},
		{"the last init failed", regular, list{ended(0), ended(0), ended(1), plain}, "0 0 1 waits"},
		{"the last init succeeded", regular, list{ended(0), ended(0), ended(0), plain}, "0 0 0 137"},
		{"the last init had succeeded", regular, list{ended(0), ended(0), waitsBy(0), plain}, "0 0 137 after 0 137"},
		{"a regular one runs", regular, list{plain, plain, plain, runs}, "137 waits waits 137"},
		{"a regular one had run", regular, list{plain, plain, plain, waitsBy(1)}, "137 waits waits 137 after 1"},
		{"the sidecar has started", side, list{ended(0), runs, plain}, "0 137 137"},
		{"the sidecar has not started", side, list{ended(0), {State: runs.State}, plain}, "0 137 waits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: tc.init, Containers: []v1.Container{{Name: "c"}}}}
			st := &v1.PodStatus{InitContainerStatuses: tc.was[:len(tc.init)], ContainerStatuses: tc.was[len(tc.init):]}
			terminatedStatus(pod, st)
			if got := ends(st); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if st.Phase != v1.PodFailed {
				t.Errorf("phase %s", st.Phase)
			}
		})
	}
	for was, want := range map[v1.PodPhase]v1.PodPhase{
		v1.PodPending: v1.PodFailed, v1.PodRunning: v1.PodFailed, v1.PodUnknown: v1.PodFailed, "odd": v1.PodFailed,
		v1.PodSucceeded: v1.PodSucceeded, v1.PodFailed: v1.PodFailed,
	} {
		pod := &v1.Pod{}
		if got := terminatedStatus(pod, &v1.PodStatus{Phase: was}).Phase; got != want {
			t.Errorf("phase %s after %s, want %s", got, was, want)
		}
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		if got := terminatedStatus(pod, &v1.PodStatus{Phase: was}).Phase; got != was {
			t.Errorf("static: phase %s after %s", got, was)
		}
	}
}

func end(code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
}

// ends says how the containers ended, init containers first.
func ends(st *v1.PodStatus) (text string) {
	for i, s := range append(append([]v1.ContainerStatus(nil), st.InitContainerStatuses...), st.ContainerStatuses...) {
		if i > 0 {
			text += " "
		}
		if s.State.Terminated == nil {
			text += "waits"
			continue
		}
		text += fmt.Sprint(s.State.Terminated.ExitCode)
		if last := s.LastTerminationState.Terminated; last != nil {
			text += fmt.Sprint(" after ", last.ExitCode)
		}
	}
	return text
}
