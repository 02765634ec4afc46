package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unready is a container that runs and is not ready.
func unready(name string) v1.ContainerStatus {
	s := running(name)
	s.Ready = false
	return s
}

func doneInit(name string) v1.ContainerStatus {
	s := exited(name, 0)
	s.Ready = true
	return s
}

// conditionOf computes the conditions and picks one.
func conditionOf(t *testing.T, in Input, st *v1.PodStatus, typ v1.PodConditionType) v1.PodCondition {
	t.Helper()
	in.Now = now
	var found []v1.PodCondition
	for _, c := range Conditions(in, st) {
		if c.Type == typ {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d conditions %s, want 1", len(found), typ)
	}
	return found[0]
}

// said is what a condition says, in a form that a table can hold.
type said struct {
	status          v1.ConditionStatus
	reason, message string
}

func saidBy(c v1.PodCondition) said { return said{c.Status, c.Reason, c.Message} }

var isTrue = said{status: v1.ConditionTrue}

func TestContainersReady(t *testing.T) {
	type list = []v1.ContainerStatus
	for _, tc := range []struct {
		name       string
		phase      v1.PodPhase
		init       []v1.Container
		initSt, st list
		want       said
	}{
		{name: "no statuses", want: said{v1.ConditionFalse, "UnknownContainerStatuses", ""}},
		{name: "all ready", phase: v1.PodRunning, st: list{running("a"), running("b")}, want: isTrue},
		{name: "one unready", phase: v1.PodRunning, st: list{running("a"), unready("b")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [b]"}},
		{name: "one unknown", phase: v1.PodPending, st: list{running("a")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unknown status: [b]"}},
		{name: "both waiting", phase: v1.PodPending, st: list{waiting("a"), waiting("b")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [a b]"}},
		{name: "unknown goes before unready", phase: v1.PodPending, st: list{unready("a")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [a]"}},
		{name: "succeeded", phase: v1.PodSucceeded, st: list{exited("a", 0), exited("b", 0)},
			want: said{v1.ConditionFalse, "PodCompleted", ""}},
		{name: "succeeded, one unknown", phase: v1.PodSucceeded, st: list{exited("a", 0)},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unknown status: [b], containers with unready status: [a]"}},
		{name: "failed, though all are ready", phase: v1.PodFailed, st: list{running("a"), running("b")},
			want: said{v1.ConditionFalse, "PodFailed", ""}},
		{name: "an init container does not count", phase: v1.PodRunning, init: []v1.Container{{Name: "i"}},
			initSt: list{exited("i", 1)}, st: list{running("a"), running("b")}, want: isTrue},
		{name: "a sidecar does", phase: v1.PodRunning, init: []v1.Container{sidecar("s")},
			initSt: list{unready("s")}, st: list{running("a"), running("b")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unready status: [s]"}},
		{name: "sidecars come first", phase: v1.PodPending, init: []v1.Container{sidecar("s")}, st: list{unready("a"), running("b")},
			want: said{v1.ConditionFalse, "ContainersNotReady", "containers with unknown status: [s], containers with unready status: [a]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: podOf(always, tc.init, "a", "b")}
			st := &v1.PodStatus{Phase: tc.phase, InitContainerStatuses: tc.initSt, ContainerStatuses: tc.st}
			if got := saidBy(conditionOf(t, in, st, v1.ContainersReady)); got != tc.want {
				t.Errorf("ContainersReady %+v, want %+v", got, tc.want)
			}
			if tc.want.status != v1.ConditionTrue {
				if got := saidBy(conditionOf(t, in, st, v1.PodReady)); got != tc.want {
					t.Errorf("Ready %+v, want the same as ContainersReady: %+v", got, tc.want)
				}
			}
		})
	}
}

func TestReadinessGates(t *testing.T) {
	gate := func(typ v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
		return v1.PodCondition{Type: typ, Status: status}
	}
	ready := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("c")}}
	for _, tc := range []struct {
		name       string
		gates      []v1.PodConditionType
		conditions []v1.PodCondition // what the pod says
		previous   *v1.PodStatus     // what was computed last
		want       said
	}{
		{name: "no gates", want: isTrue},
		{name: "open", gates: []v1.PodConditionType{"g"}, conditions: []v1.PodCondition{gate("g", v1.ConditionTrue)}, want: isTrue},
		{name: "shut", gates: []v1.PodConditionType{"g"}, conditions: []v1.PodCondition{gate("g", v1.ConditionFalse)},
			want: said{v1.ConditionFalse, "ReadinessGatesNotReady", `the status of pod readiness gate "g" is not "True", but False`}},
		{name: "unknown", gates: []v1.PodConditionType{"g"}, conditions: []v1.PodCondition{gate("g", v1.ConditionUnknown)},
			want: said{v1.ConditionFalse, "ReadinessGatesNotReady", `the status of pod readiness gate "g" is not "True", but Unknown`}},
		{name: "missing", gates: []v1.PodConditionType{"g"},
			want: said{v1.ConditionFalse, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "g" does not exist.`}},
		{name: "one of two", gates: []v1.PodConditionType{"g", "h"}, conditions: []v1.PodCondition{gate("g", v1.ConditionTrue)},
			want: said{v1.ConditionFalse, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "h" does not exist.`}},
		{name: "a sentence for each", gates: []v1.PodConditionType{"g", "h"}, conditions: []v1.PodCondition{gate("h", v1.ConditionFalse)},
			want: said{v1.ConditionFalse, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "g" does not exist., ` +
				`the status of pod readiness gate "h" is not "True", but False`}},
		{name: "opened since the last status", gates: []v1.PodConditionType{"g"}, conditions: []v1.PodCondition{gate("g", v1.ConditionTrue)},
			previous: &v1.PodStatus{Conditions: []v1.PodCondition{gate("g", v1.ConditionFalse)}}, want: isTrue},
		{name: "taken away since the last status", gates: []v1.PodConditionType{"g"},
			previous: &v1.PodStatus{Conditions: []v1.PodCondition{gate("g", v1.ConditionTrue)}},
			want:     said{v1.ConditionFalse, "ReadinessGatesNotReady", `corresponding condition of pod readiness gate "g" does not exist.`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Status.Conditions = tc.conditions
			for _, g := range tc.gates {
				p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: g})
			}
			in := Input{Pod: p, Previous: tc.previous}
			if got := saidBy(conditionOf(t, in, &ready, v1.PodReady)); got != tc.want {
				t.Errorf("Ready %+v, want %+v", got, tc.want)
			}
			if got := saidBy(conditionOf(t, in, &ready, v1.ContainersReady)); got != isTrue {
				t.Errorf("ContainersReady %+v, which gates do not change", got)
			}
		})
	}
}

func TestInitialized(t *testing.T) {
	type list = []v1.ContainerStatus
	init, side := []v1.Container{{Name: "i"}, {Name: "j"}}, []v1.Container{sidecar("s")}
	before := &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}}
	for _, tc := range []struct {
		name       string
		phase      v1.PodPhase
		init       []v1.Container
		initSt, st list
		previous   *v1.PodStatus
		want       said
	}{
		{name: "no init containers", want: isTrue},
		{name: "no init containers, and completed", phase: v1.PodSucceeded, want: said{v1.ConditionTrue, "PodCompleted", ""}},
		{name: "no init containers, and failed", phase: v1.PodFailed, want: isTrue},
		{name: "no statuses", init: init, want: said{v1.ConditionFalse, "UnknownContainerStatuses", ""}},
		{name: "none done", phase: v1.PodPending, init: init, initSt: list{waiting("i"), waiting("j")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [i j]"}},
		{name: "one done", phase: v1.PodPending, init: init, initSt: list{doneInit("i"), waiting("j")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [j]"}},
		{name: "one unknown", phase: v1.PodPending, init: init, initSt: list{waiting("i")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with unknown status: [j], containers with incomplete status: [i]"}},
		{name: "one failed", phase: v1.PodFailed, init: init, initSt: list{exited("i", 1), waiting("j")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [i j]"}},
		{name: "all done", phase: v1.PodPending, init: init, initSt: list{doneInit("i"), doneInit("j")}, st: list{waiting("c")}, want: isTrue},
		{name: "succeeded", phase: v1.PodSucceeded, init: init, initSt: list{doneInit("i"), doneInit("j")}, st: list{exited("c", 0)},
			want: said{v1.ConditionTrue, "PodCompleted", ""}},
		{name: "succeeded, one unknown", phase: v1.PodSucceeded, init: init, initSt: list{doneInit("i")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with unknown status: [j]"}},
		{name: "once more in a new sandbox", phase: v1.PodPending, init: init, initSt: list{running("i"), waiting("j")}, st: list{waitingAfter("c", 1)}, want: isTrue},
		{name: "a regular container runs", phase: v1.PodRunning, init: init, initSt: list{waiting("i"), waiting("j")}, st: list{running("c")}, want: isTrue},
		{name: "a regular container ran", phase: v1.PodRunning, init: init, initSt: list{waiting("i"), waiting("j")}, st: list{exited("c", 1)}, want: isTrue},
		{name: "it was before", phase: v1.PodPending, init: init, initSt: list{running("i"), waiting("j")}, st: list{waiting("c")}, previous: before, want: isTrue},
		{name: "sidecar waits", phase: v1.PodPending, init: side, initSt: list{waiting("s")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [s]"}},
		{name: "sidecar has not started up", phase: v1.PodPending, init: side, initSt: list{notStarted("s")},
			want: said{v1.ConditionFalse, "ContainersNotInitialized", "containers with incomplete status: [s]"}},
		{name: "sidecar has started and is not ready", phase: v1.PodPending, init: side, initSt: list{unready("s")}, want: isTrue},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: podOf(never, tc.init, "c"), Previous: tc.previous}
			st := &v1.PodStatus{Phase: tc.phase, InitContainerStatuses: tc.initSt, ContainerStatuses: tc.st}
			if got := saidBy(conditionOf(t, in, st, v1.PodInitialized)); got != tc.want {
				t.Errorf("Initialized %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestSandboxAndSchedule(t *testing.T) {
	for lack, want := range map[string]said{"": isTrue, "no pod sandbox exists": {v1.ConditionFalse, "PodSandboxNotReady", "no pod sandbox exists"}} {
		in := Input{Pod: podOf(always, nil, "c"), SandboxNotReady: lack}
		if got := saidBy(conditionOf(t, in, &v1.PodStatus{}, v1.PodReadyToStartContainers)); got != want {
			t.Errorf("PodReadyToStartContainers %+v, want %+v", got, want)
		}
		if got := saidBy(conditionOf(t, in, &v1.PodStatus{}, v1.PodScheduled)); got != isTrue {
			t.Errorf("PodScheduled %+v", got)
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	hourAgo := metav1.NewTime(now.Add(-time.Hour))
	for _, tc := range []struct {
		name string
		was  []v1.PodCondition
		want time.Time
	}{
		{"new", nil, now},
		{"same status", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: hourAgo}}, hourAgo.Time},
		{"same status, another reason", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Reason: "r", LastTransitionTime: hourAgo}}, hourAgo.Time},
		{"another status", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: hourAgo}}, now},
		{"same status without a time", []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}, now},
		{"another type", []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: hourAgo}}, now},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: podOf(always, nil, "c"), Previous: &v1.PodStatus{Conditions: tc.was}}
			st := &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{running("c")}}
			if got := conditionOf(t, in, st, v1.PodReady); !got.LastTransitionTime.Time.Equal(tc.want) {
				t.Errorf("transition at %v, want %v", got.LastTransitionTime, tc.want)
			}
		})
	}
	fraction := Input{Pod: podOf(always, nil, "c"), Now: now.Add(900 * time.Millisecond)}
	for _, c := range Conditions(fraction, &v1.PodStatus{}) {
		if !c.LastTransitionTime.Time.Equal(now) {
			t.Errorf("%s changed at %v; the API keeps whole seconds", c.Type, c.LastTransitionTime.Time)
		}
	}
}

func TestObservedGeneration(t *testing.T) {
	p := podOf(always, nil, "c")
	p.Generation = 7
	p.Status.Conditions = []v1.PodCondition{{Type: "foreign", Status: v1.ConditionTrue, ObservedGeneration: 3}}
	st := Of(Input{Pod: p, Previous: &v1.PodStatus{ObservedGeneration: 9}, Now: now})
	if st.ObservedGeneration != 9 {
		t.Errorf("the status is of generation %d after 9", st.ObservedGeneration)
	}
	for _, c := range st.Conditions {
		if want := map[bool]int64{true: 3, false: 7}[c.Type == "foreign"]; c.ObservedGeneration != want {
			t.Errorf("%s is of generation %d, want %d", c.Type, c.ObservedGeneration, want)
		}
	}
}

func TestConditionsOfOthers(t *testing.T) {
	cond := func(typ v1.PodConditionType, reason string) v1.PodCondition {
		return v1.PodCondition{Type: typ, Status: v1.ConditionTrue, Reason: reason}
	}
	p := podOf(always, nil, "c")
	p.Status.Conditions = []v1.PodCondition{cond("foreign", "new"), cond(v1.DisruptionTarget, "theirs"), cond(v1.PodReady, "x")}
	for _, tc := range []struct {
		name     string
		previous *v1.PodStatus
		want     map[v1.PodConditionType]string
	}{
		{"nothing computed yet", nil, map[v1.PodConditionType]string{"foreign": "new", v1.DisruptionTarget: "theirs"}},
		{"others' are the pod's", &v1.PodStatus{Conditions: []v1.PodCondition{cond("foreign", "old"), cond("gone", "old")}},
			map[v1.PodConditionType]string{"foreign": "new", v1.DisruptionTarget: "theirs"}},
		{"the node's word on disruption", &v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.DisruptionTarget, "ours")}},
			map[v1.PodConditionType]string{"foreign": "new", v1.DisruptionTarget: "ours"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[v1.PodConditionType]string{}
			all := map[v1.PodConditionType]int{}
			for _, c := range Conditions(Input{Pod: p, Previous: tc.previous, Now: now}, &v1.PodStatus{}) {
				all[c.Type]++
				switch c.Type {
				case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers:
				default:
					got[c.Type] = c.Reason
				}
			}
			if len(got) != len(tc.want) || len(all) != 5+len(tc.want) {
				t.Errorf("conditions %v", all)
			}
			for typ, reason := range tc.want {
				if got[typ] != reason {
					t.Errorf("%s %q, want %q", typ, got[typ], reason)
				}
			}
		})
	}
}

// What is computed as a whole and what is set afterwards must not differ: each
// would undo the other.
func TestSetReadiness(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}},
		Containers:     []v1.Container{{Name: "a"}, {Name: "b"}},
		ReadinessGates: []v1.PodReadinessGate{{ConditionType: "g"}, {ConditionType: "h"}},
	}}
	pod.Generation = 3
	now := time.Now()
	statuses := func(bits int, names ...string) (list []v1.ContainerStatus) {
		for _, name := range names {
			if bits&1 == 0 {
				list = append(list, v1.ContainerStatus{Name: name, Ready: bits&2 == 0})
			}
			bits >>= 2
		}
		return list
	}
	gates := [][]v1.PodCondition{
		nil,
		{{Type: "g", Status: v1.ConditionTrue}},
		{{Type: "g", Status: v1.ConditionTrue}, {Type: "h", Status: v1.ConditionUnknown}},
		{{Type: "g", Status: v1.ConditionTrue}, {Type: "h", Status: v1.ConditionTrue}},
	}
	ready := 0
	for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed} {
		for bits := range 64 {
			for _, conditions := range gates {
				pod.Status.Conditions = conditions
				st := &v1.PodStatus{
					Phase: phase, InitContainerStatuses: statuses(bits, "s"), ContainerStatuses: statuses(bits>>2, "a", "b"),
					Conditions: append([]v1.PodCondition(nil), conditions...),
				}
				want := Conditions(Input{Pod: pod}, st)
				SetReadiness(pod, st, now)
				for _, typ := range []v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
					a, b := condition(*st, typ), condition(v1.PodStatus{Conditions: want}, typ)
					a.LastTransitionTime = b.LastTransitionTime
					if a != b {
						t.Errorf("%s %b: %+v, of the whole %+v", phase, bits, a, b)
					}
					if a.Status == v1.ConditionTrue {
						ready++
					}
				}
			}
		}
	}
	if ready == 0 {
		t.Error("nothing was ever ready")
	}
}

func TestResizeConditions(t *testing.T) {
	hourAgo := metav1.NewTime(now.Add(-time.Hour))
	const pending, progress = v1.PodResizePending, v1.PodResizeInProgress
	cond := func(typ v1.PodConditionType, reason string, generation int64) v1.PodCondition {
		return v1.PodCondition{
			Type: typ, Status: v1.ConditionTrue, Reason: reason, ObservedGeneration: generation,
			LastTransitionTime: hourAgo, LastProbeTime: hourAgo,
		}
	}
	type list = []v1.PodCondition
	for _, tc := range []struct {
		name     string
		previous list
		held     list
		failed   bool
		want     list // without times; LastTransitionTime set means that it is that of an hour ago
	}{
		{name: "none"},
		{name: "given up by who decides", previous: list{cond(pending, "Deferred", 3)}},
		{name: "infeasible", held: list{cond(pending, "Infeasible", 5)}, want: list{{Type: pending, Reason: "Infeasible", ObservedGeneration: 5}}},
		{name: "any other reason is deferred", held: list{cond(pending, "Error", 5)}, want: list{{Type: pending, Reason: "Deferred", ObservedGeneration: 5}}},
		{name: "of the pod's generation", held: list{cond(pending, "Deferred", 0), cond(progress, "", 0)},
			want: list{{Type: pending, Reason: "Deferred", ObservedGeneration: 7}, {Type: progress, ObservedGeneration: 7}}},
		{name: "pending goes with the pod's generation", previous: list{cond(pending, "Deferred", 3)}, held: list{cond(pending, "Deferred", 0)},
			want: list{{Type: pending, Reason: "Deferred", ObservedGeneration: 7, LastTransitionTime: hourAgo}}},
		{name: "one in progress keeps its own", previous: list{cond(progress, "", 3)}, held: list{cond(progress, "", 0)},
			want: list{{Type: progress, ObservedGeneration: 3, LastTransitionTime: hourAgo}}},
		{name: "who decides knows better", previous: list{cond(progress, "", 3)}, held: list{cond(progress, "", 4)},
			want: list{{Type: progress, ObservedGeneration: 4, LastTransitionTime: hourAgo}}},
		{name: "another reason is a transition", previous: list{cond(progress, "", 3)}, held: list{cond(progress, "Error", 3)},
			want: list{{Type: progress, Reason: "Error", ObservedGeneration: 3}}},
		{name: "another status is", previous: list{{Type: progress, Status: v1.ConditionFalse, LastTransitionTime: hourAgo}}, held: list{cond(progress, "", 3)},
			want: list{{Type: progress, ObservedGeneration: 3}}},
		{name: "others do not come this way", held: list{cond(v1.PodReady, "", 3), cond("foreign", "", 3)}},
		{name: "not of a pod that is over", held: list{cond(pending, "Deferred", 5), cond(progress, "", 5)}, failed: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(always, nil, "c")
			p.Generation = 7
			st := &v1.PodStatus{Phase: v1.PodRunning}
			if tc.failed {
				st.Phase = v1.PodFailed
			}
			var got list
			for _, c := range Conditions(Input{Pod: p, Resize: tc.held, Previous: &v1.PodStatus{Conditions: tc.previous}, Now: now}, st) {
				if c.Type == pending || c.Type == progress {
					got = append(got, c)
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%+v, want %+v", got, tc.want)
			}
			for i, c := range got {
				at := now
				if !tc.want[i].LastTransitionTime.IsZero() {
					at = hourAgo.Time
				}
				if c.Type != tc.want[i].Type || c.Status != v1.ConditionTrue || c.Reason != tc.want[i].Reason ||
					c.ObservedGeneration != tc.want[i].ObservedGeneration || !c.LastTransitionTime.Time.Equal(at) || c.LastProbeTime != hourAgo {
					t.Errorf("%+v, want %+v at %v", c, tc.want[i], at)
				}
			}
		})
	}
}

// Whoever ends a pod says so on top of what was computed, and from there on it
// stays.
func TestDisruptionStays(t *testing.T) {
	p := podOf(always, nil, "c")
	theirs := v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, LastTransitionTime: metav1.NewTime(now)}
	p.Status.Conditions = []v1.PodCondition{theirs}
	first := Of(Input{Pod: p, Now: now})
	evict := func(st *v1.PodStatus, now time.Time) {
		st.Phase, st.Reason, st.Message = v1.PodFailed, "Evicted", "The node was low on memory."
		SetCondition(st, v1.PodCondition{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet, ObservedGeneration: p.Generation,
		}, now)
	}
	evict(&first, now.Add(time.Minute))
	if c := condition(first, v1.DisruptionTarget); c.Reason != v1.PodReasonTerminationByKubelet || !c.LastTransitionTime.Time.Equal(now) {
		t.Errorf("%+v, want the node's reason and the time of the pod's first disruption", c)
	}
	second := Of(Input{Pod: p, Previous: &first, Terminal: true, Now: now.Add(time.Hour)})
	if second.Phase != v1.PodFailed || second.Reason != "Evicted" || second.Message != first.Message {
		t.Errorf("phase %s, %s: %s", second.Phase, second.Reason, second.Message)
	}
	if c := condition(second, v1.DisruptionTarget); c != condition(first, v1.DisruptionTarget) {
		t.Errorf("%+v, want what was said", c)
	}
	evict(&second, now.Add(2*time.Hour)) // said again with each status
	if c := condition(second, v1.DisruptionTarget); !c.LastTransitionTime.Time.Equal(now) {
		t.Errorf("changed at %v, though it did not", c.LastTransitionTime)
	}
	fresh := v1.PodStatus{}
	evict(&fresh, now.Add(500*time.Millisecond))
	if c := condition(fresh, v1.DisruptionTarget); !c.LastTransitionTime.Time.Equal(now) {
		t.Errorf("new at %v, want whole seconds", c.LastTransitionTime)
	}
}

// A disruption that came to nothing is taken back by whoever announced it.
func TestDisruptionTakenBack(t *testing.T) {
	p := podOf(always, nil, "c")
	at := func(status v1.ConditionStatus, after time.Duration) v1.PodCondition {
		return v1.PodCondition{Type: v1.DisruptionTarget, Status: status, LastTransitionTime: metav1.NewTime(now.Add(after))}
	}
	p.Status.Conditions = []v1.PodCondition{at(v1.ConditionTrue, 0)}
	first := Of(Input{Pod: p, Now: now})
	p.Status.Conditions = []v1.PodCondition{at(v1.ConditionFalse, 2*time.Minute)}
	if c := condition(Of(Input{Pod: p, Previous: &first, Now: now}), v1.DisruptionTarget); c.Status != v1.ConditionFalse {
		t.Errorf("%+v, want the later word", c)
	}
	p.Status.Conditions = []v1.PodCondition{at(v1.ConditionFalse, -time.Minute)}
	if c := condition(Of(Input{Pod: p, Previous: &first, Now: now}), v1.DisruptionTarget); c.Status != v1.ConditionTrue {
		t.Errorf("%+v, want the later word", c)
	}
}
