package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
)

func running(name string) v1.ContainerStatus {
	started := true
	return v1.ContainerStatus{Name: name, Ready: true, Started: &started, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func notStarted(name string) v1.ContainerStatus {
	s := running(name)
	s.Started = new(bool)
	return s
}

func exited(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
}

func waiting(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
}

func waitingAfter(name string, code int32) v1.ContainerStatus {
	s := waiting(name)
	s.LastTerminationState = exited(name, code).State
	return s
}

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

func podOf(policy v1.RestartPolicy, init []v1.Container, names ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: v1.PodSpec{RestartPolicy: policy, InitContainers: init}}
	for _, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n, Image: "i"})
	}
	return p
}

func sidecar(name string) v1.Container {
	a := v1.ContainerRestartPolicyAlways
	return v1.Container{Name: name, Image: "i", RestartPolicy: &a}
}

func TestPhase(t *testing.T) {
	type list = []v1.ContainerStatus
	onFailurePolicy := v1.ContainerRestartPolicyOnFailure
	init := []v1.Container{{Name: "i"}}
	side := []v1.Container{sidecar("s")}
	alwaysPolicy, stateless := v1.ContainerRestartPolicyAlways, func(name string) v1.ContainerStatus { return v1.ContainerStatus{Name: name} }
	ctrlInit, ctrlSide := []v1.Container{restartsAllAfter42(v1.Container{Name: "i"})}, []v1.Container{restartsAllAfter42(sidecar("s"))}
	for _, tc := range []struct {
		name     string
		policy   v1.RestartPolicy
		init     []v1.Container
		initSt   list
		st       list
		own      *v1.ContainerRestartPolicy // of the first container
		ctrl     bool                       // the first restarts all when it ends with 42
		terminal bool
		active   bool
		want     v1.PodPhase
	}{
		{name: "nothing known", policy: always, want: v1.PodPending},
		{name: "all running", policy: always, st: list{running("a"), running("b")}, want: v1.PodRunning},
		{name: "both stopped, always", policy: always, st: list{exited("a", 0), exited("b", 1)}, want: v1.PodRunning},
		{name: "both 0, always, terminal", policy: always, st: list{exited("a", 0), exited("b", 0)}, terminal: true, want: v1.PodSucceeded},
		{name: "one failed, always, terminal", policy: always, st: list{exited("a", 0), exited("b", 1)}, terminal: true, want: v1.PodFailed},
		{name: "one without status", policy: always, st: list{running("a")}, want: v1.PodPending},
		{name: "one plain waiting", policy: always, st: list{running("a"), waiting("b")}, want: v1.PodPending},
		{name: "one in a crash loop", policy: always, st: list{running("a"), waitingAfter("b", 1)}, want: v1.PodRunning},
		{name: "never: both 0", policy: never, st: list{exited("a", 0), exited("b", 0)}, want: v1.PodSucceeded},
		{name: "never: both failed", policy: never, st: list{exited("a", 1), exited("b", 2)}, want: v1.PodFailed},
		{name: "never: running and failed", policy: never, st: list{running("a"), exited("b", 2)}, want: v1.PodRunning},
		{name: "on failure: both failed", policy: onFailure, st: list{exited("a", 1), exited("b", 2)}, want: v1.PodRunning},
		{name: "on failure: both 0", policy: onFailure, st: list{exited("a", 0), exited("b", 0)}, want: v1.PodSucceeded},
		{name: "init failed, always", policy: always, init: init, initSt: list{exited("i", 1)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "init failed, never", policy: never, init: init, initSt: list{exited("i", 1)}, st: list{waiting("a"), waiting("b")}, want: v1.PodFailed},
		{name: "init running", policy: never, init: init, initSt: list{running("i")}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "init waits after 0, mains unreported", policy: never, init: init, initSt: list{waitingAfter("i", 0)}, want: v1.PodPending},
		{name: "sidecar not started, mains run, not active", policy: always, init: side, initSt: list{notStarted("s")}, st: list{running("a"), running("b")}, want: v1.PodPending},
		{name: "sidecar not started, mains run, active", policy: always, init: side, initSt: list{notStarted("s")}, st: list{running("a"), running("b")}, active: true, want: v1.PodRunning},
		{name: "sidecar runs, mains succeeded", policy: never, init: side, initSt: list{running("s")}, st: list{exited("a", 0), exited("b", 0)}, want: v1.PodRunning},
		{name: "sidecar stopped, mains succeeded", policy: never, init: side, initSt: list{exited("s", 137)}, st: list{exited("a", 0), exited("b", 0)}, want: v1.PodSucceeded},
		{name: "own policy restarts, pod never", policy: never, own: &onFailurePolicy, st: list{exited("a", 1), exited("b", 1)}, want: v1.PodRunning},
		{name: "own policy is content, pod never", policy: never, own: &onFailurePolicy, st: list{exited("a", 0), exited("b", 1)}, want: v1.PodFailed},

		{name: "a state that is none", policy: always, st: list{running("a"), stateless("b")}, want: v1.PodPending},
		{name: "both in a crash loop", policy: always, st: list{waitingAfter("a", 1), waitingAfter("b", 1)}, want: v1.PodRunning},
		{name: "never: waiting after 0 is no success", policy: never, st: list{waitingAfter("a", 0), exited("b", 0)}, want: v1.PodFailed},
		{name: "stopped and without status", policy: never, st: list{exited("a", 0)}, want: v1.PodPending},
		{name: "on failure: one failed, one 0", policy: onFailure, st: list{exited("a", 1), exited("b", 0)}, want: v1.PodRunning},
		{name: "init failed, on failure", policy: onFailure, init: init, initSt: list{exited("i", 1)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "init waits after a failure, never", policy: never, init: init, initSt: list{waitingAfter("i", 1)}, st: list{waiting("a"), waiting("b")}, want: v1.PodFailed},
		{name: "init waits after a failure, always", policy: always, init: init, initSt: list{waitingAfter("i", 1)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "init waits", policy: never, init: init, initSt: list{waiting("i")}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "init unreported", policy: never, init: init, st: list{running("a"), running("b")}, want: v1.PodPending},
		{name: "init done", policy: never, init: init, initSt: list{exited("i", 0)}, st: list{running("a"), running("b")}, want: v1.PodRunning},
		{name: "init done, mains wait", policy: never, init: init, initSt: list{exited("i", 0)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},

		{name: "sidecar unreported", policy: always, init: side, st: list{running("a"), running("b")}, active: true, want: v1.PodPending},
		{name: "sidecar in a state that is none", policy: always, init: side, initSt: list{stateless("s")}, st: list{running("a"), running("b")}, active: true, want: v1.PodPending},
		{name: "sidecar waits", policy: always, init: side, initSt: list{waiting("s")}, st: list{running("a"), running("b")}, active: true, want: v1.PodPending},
		{name: "sidecar in a crash loop", policy: always, init: side, initSt: list{waitingAfter("s", 1)}, st: list{running("a"), running("b")}, want: v1.PodRunning},
		{name: "sidecar stopped, mains run", policy: always, init: side, initSt: list{exited("s", 1)}, st: list{running("a"), running("b")}, want: v1.PodRunning},
		{name: "sidecar runs, mains run", policy: always, init: side, initSt: list{running("s")}, st: list{running("a"), running("b")}, want: v1.PodRunning},
		{name: "sidecar runs, mains wait", policy: always, init: side, initSt: list{running("s")}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "sidecar stopped with 0, mains failed", policy: never, init: side, initSt: list{exited("s", 0)}, st: list{exited("a", 1), exited("b", 0)}, want: v1.PodFailed},
		{name: "sidecar runs, mains failed, terminal", policy: always, init: side, initSt: list{running("s")}, st: list{exited("a", 1), exited("b", 1)}, terminal: true, want: v1.PodRunning},

		{name: "own policy always, pod never", policy: never, own: &alwaysPolicy, st: list{exited("a", 0), exited("b", 0)}, want: v1.PodRunning},
		{name: "own policy always, terminal", policy: never, own: &alwaysPolicy, st: list{exited("a", 0), exited("b", 0)}, terminal: true, want: v1.PodSucceeded},
		{name: "restart of all, by a main", policy: never, ctrl: true, st: list{exited("a", 42), exited("b", 137)}, want: v1.PodRunning},
		{name: "restart of all, not by this end", policy: never, ctrl: true, st: list{exited("a", 41), exited("b", 137)}, want: v1.PodFailed},
		{name: "restart of all, by an init container", policy: never, init: ctrlInit, initSt: list{exited("i", 42)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
		{name: "restart of all, by a sidecar", policy: never, init: ctrlSide, initSt: list{exited("s", 42)}, st: list{waiting("a"), waiting("b")}, want: v1.PodPending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.policy, tc.init, "a", "b")
			p.Spec.Containers[0].RestartPolicy = tc.own
			if tc.ctrl {
				p.Spec.Containers[0] = restartsAllAfter42(p.Spec.Containers[0])
			}
			got := Phase(p, &v1.PodStatus{InitContainerStatuses: tc.initSt, ContainerStatuses: tc.st}, tc.terminal, tc.active)
			if got != tc.want {
				t.Errorf("phase %s, want %s", got, tc.want)
			}
		})
	}
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func observe(state observed.State, name string, code int32, restarts int32, age time.Duration) observed.Container {
	return observed.Container{
		ID: name + "-" + age.String(), Name: name, State: state, ExitCode: &code, RestartCount: restarts,
		CreatedAt: now.Add(-age), StartedAt: now.Add(-age), FinishedAt: now, SandboxID: "s",
	}
}

func TestContainerStatuses(t *testing.T) {
	prevRunning := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{running("c")}}
	deleted := metav1.NewTime(now)
	for _, tc := range []struct {
		name    string
		obs     []observed.Container
		prev    *v1.PodStatus
		deleted *metav1.Time
		errs    map[string]podlife.Cause
		check   func(v1.ContainerStatus) bool
	}{
		{name: "unknown to the runtime", check: func(s v1.ContainerStatus) bool {
			return s.State.Waiting != nil && s.State.Waiting.Reason == "ContainerCreating"
		}},
		{name: "running", obs: []observed.Container{observe(observed.Running, "c", 0, 2, 1)}, check: func(s v1.ContainerStatus) bool {
			return s.State.Running != nil && s.RestartCount == 2 && s.Ready && *s.Started
		}},
		{name: "created", obs: []observed.Container{observe(observed.Created, "c", 0, 0, 1)}, check: func(s v1.ContainerStatus) bool {
			return s.State.Waiting != nil && s.State.Waiting.Reason == ""
		}},
		{name: "exited", obs: []observed.Container{observe(observed.Exited, "c", 3, 0, 1)}, check: func(s v1.ContainerStatus) bool {
			return s.State.Terminated != nil && s.State.Terminated.ExitCode == 3 && s.State.Terminated.Reason == "Error" && !s.Ready
		}},
		{name: "two instances", obs: []observed.Container{observe(observed.Running, "c", 0, 1, 1), observe(observed.Exited, "c", 7, 0, 2)},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Running != nil && s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.ExitCode == 7
			}},
		{name: "vanished", prev: prevRunning, check: func(s v1.ContainerStatus) bool {
			return s.State.Waiting != nil && s.LastTerminationState.Terminated != nil &&
				s.LastTerminationState.Terminated.ExitCode == 137 && s.RestartCount == 1
		}},
		{name: "vanished while deleting", prev: prevRunning, deleted: &deleted, check: func(s v1.ContainerStatus) bool {
			return s.LastTerminationState.Terminated != nil && s.RestartCount == 0
		}},
		{name: "restart count never falls", obs: []observed.Container{observe(observed.Running, "c", 0, 0, 1)},
			prev: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://old", RestartCount: 5, State: exited("c", 1).State}}},
			check: func(s v1.ContainerStatus) bool {
				return s.RestartCount == 6 && s.LastTerminationState.Terminated != nil
			}},
		{name: "crash loop", obs: []observed.Container{observe(observed.Exited, "c", 1, 0, 1)}, errs: map[string]podlife.Cause{"c": {Reason: "CrashLoopBackOff", Message: "wait"}},
			check: func(s v1.ContainerStatus) bool {
				return s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" && s.LastTerminationState.Terminated != nil
			}},
		{name: "start error of one that runs", obs: []observed.Container{observe(observed.Running, "c", 0, 0, 1)}, errs: map[string]podlife.Cause{"c": {Reason: "ErrImagePull"}},
			check: func(s v1.ContainerStatus) bool { return s.State.Running != nil }},
		{name: "unknown and it ran", obs: []observed.Container{observe(observed.Unknown, "c", 0, 0, 1)}, prev: prevRunning,
			check: func(s v1.ContainerStatus) bool {
				return s.State.Terminated != nil && s.State.Terminated.ExitCode == 137 && s.RestartCount == 1
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.DeletionTimestamp = tc.deleted
			in := Input{Pod: p, Observed: &observed.Pod{UID: "u", Containers: tc.obs}, Previous: tc.prev, StartErrors: tc.errs, Now: now}
			got := ContainerStatuses(in, RegularContainers)
			if len(got) != 1 || !tc.check(got[0]) {
				t.Errorf("status %+v", got)
			}
		})
	}
}

func TestInitContainersAfterTheFact(t *testing.T) {
	p := podOf(always, []v1.Container{{Name: "i", Image: "i"}, sidecar("s")}, "c")
	in := Input{Pod: p, Now: now, Observed: &observed.Pod{Containers: []observed.Container{observe(observed.Running, "c", 0, 0, 1)}}}
	got := ContainerStatuses(in, InitContainers)
	if got[0].State.Terminated == nil || got[0].State.Terminated.Reason != "Completed" || !got[0].Ready {
		t.Errorf("init that was cleaned away: %+v", got[0])
	}
	if got[1].State.Waiting == nil || got[1].State.Waiting.Reason != "PodInitializing" {
		t.Errorf("sidecar that is not there: %+v", got[1])
	}
}

func condition(st v1.PodStatus, typ v1.PodConditionType) v1.PodCondition {
	for _, c := range st.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return v1.PodCondition{}
}

func TestWholeStatus(t *testing.T) {
	p := podOf(always, []v1.Container{{Name: "i", Image: "i"}}, "c")
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate"}}
	obs := &observed.Pod{
		Sandboxes:  []observed.Sandbox{{ID: "s", State: observed.Running, IPs: []string{"fd00::1", "10.0.0.9"}}},
		Containers: []observed.Container{observe(observed.Running, "c", 0, 0, 1)},
	}
	first := Of(Input{Pod: p, Observed: obs, HostIPs: []string{"192.0.2.1"}, Now: now})
	if first.Phase != v1.PodRunning || first.PodIP != "10.0.0.9" || len(first.PodIPs) != 2 || first.HostIP != "192.0.2.1" {
		t.Errorf("status %+v", first)
	}
	if c := condition(first, v1.PodReady); c.Status != v1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("Ready %+v", c)
	}
	if c := condition(first, v1.ContainersReady); c.Status != v1.ConditionTrue {
		t.Errorf("ContainersReady %+v", c)
	}
	// The sandbox dies: the address and the transition times stay.
	obs2 := &observed.Pod{Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Exited}}, Containers: []observed.Container{observe(observed.Exited, "c", 1, 0, 1)}}
	second := Of(Input{Pod: p, Observed: obs2, Previous: &first, SandboxNotReady: "pod sandbox is not ready", HostIPs: []string{"192.0.2.1"}, Now: now.Add(time.Hour)})
	if second.PodIP != "10.0.0.9" || !second.StartTime.Equal(first.StartTime) {
		t.Errorf("status %+v", second)
	}
	if a, b := condition(first, v1.PodScheduled), condition(second, v1.PodScheduled); !a.LastTransitionTime.Equal(&b.LastTransitionTime) {
		t.Errorf("transition time moved from %v to %v", a, b)
	}
	if a, b := condition(first, v1.ContainersReady), condition(second, v1.ContainersReady); !b.LastTransitionTime.After(a.LastTransitionTime.Time) ||
		b.Message != "containers with unready status: [c]" {
		t.Errorf("ContainersReady from %v to %v", a, b)
	}
	// A terminal phase is for good, with its reason.
	done := second
	done.Phase, done.Reason = v1.PodFailed, "Evicted"
	third := Of(Input{Pod: p, Observed: obs, Previous: &done, Now: now})
	if third.Phase != v1.PodFailed || third.Reason != "Evicted" {
		t.Errorf("phase %s %s after Failed", third.Phase, third.Reason)
	}
}
