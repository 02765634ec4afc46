package podlife

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/podmeta"
)

var kinds = []Kind{Evicted, OverLimit, Preempted, Shutdown, DeadlineExceeded, VolumesExhausted, Rejected, Waits}

func status() v1.PodStatus {
	return v1.PodStatus{
		Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "c"}},
	}
}

// What is written into a status is read out of it again.
func TestCauseOfReadsWhatApplyWrote(t *testing.T) {
	for _, k := range kinds {
		for _, c := range []Cause{{Kind: k, Reason: "", Message: ""}, {Kind: k, Message: "the disk is full", At: time.Unix(1, 0)}, {Kind: Rejected, Reason: "OutOfcpu", Message: "m"}} {
			st := status()
			c.Apply(&st)
			got, ok := CauseOf(&st)
			_, reason, message := Cause{Kind: c.Kind, Reason: c.Reason, Message: c.Message}.words()
			if !ok || got.Kind != c.Kind || got.Reason != reason || got.Message != message {
				t.Errorf("%+v: read as %+v, %v", c, got, ok)
			}
			again := st
			c.Apply(&again)
			if again.Phase != st.Phase || again.Message != st.Message || !slices.Equal(again.Conditions, st.Conditions) {
				t.Errorf("%+v applied twice: %+v, then %+v", c, st, again)
			}
		}
	}
	for _, st := range []v1.PodStatus{
		{}, {Phase: v1.PodFailed, Reason: "Error"}, {Phase: v1.PodSucceeded}, {Phase: v1.PodRunning, Reason: "Evicted"},
		{Phase: v1.PodSucceeded, Reason: "Terminated"}, {Phase: v1.PodFailed, Message: "Pod was rejected: x", ContainerStatuses: []v1.ContainerStatus{{}}},
	} {
		if c, ok := CauseOf(&st); ok || c.Reason != st.Reason || c.Message != st.Message {
			t.Errorf("%+v: %+v", st, c)
		}
	}
}

func (c Cause) words() (phase v1.PodPhase, reason, message string) {
	e := c.effects()
	return e.phase, e.reason, e.message
}

func TestApply(t *testing.T) {
	at, before := time.Unix(1000, 0), metav1.Unix(500, 0)
	for _, tc := range []struct {
		name       string
		cause      Cause
		phase      v1.PodPhase
		conditions []v1.PodCondition
		want       v1.PodPhase
		since      metav1.Time // of DisruptionTarget; zero: there is none
	}{
		{"a pod that runs", Cause{Kind: Shutdown, At: at}, v1.PodRunning, nil, v1.PodFailed, metav1.NewTime(at)},
		{"a pod that has succeeded", Cause{Kind: Shutdown, At: at}, v1.PodSucceeded, nil, v1.PodSucceeded, metav1.NewTime(at)},
		{"disrupted already", Cause{Kind: Evicted, At: at}, v1.PodRunning, []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: before}}, v1.PodFailed, before},
		{"not disrupted before", Cause{Kind: Preempted, At: at}, v1.PodRunning, []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionFalse, LastTransitionTime: before}}, v1.PodFailed, metav1.NewTime(at)},
		{"at fault itself", Cause{Kind: OverLimit, At: at}, v1.PodRunning, nil, v1.PodFailed, metav1.Time{}},
		{"of an embedder", Cause{Reason: "LicenceLost", Message: "m"}, v1.PodRunning, nil, v1.PodFailed, metav1.Time{}},
		{"none", Cause{}, v1.PodRunning, nil, v1.PodRunning, metav1.Time{}},
		{"of a container", Cause{Kind: LivenessFailed}, v1.PodRunning, nil, v1.PodRunning, metav1.Time{}},
		{"a wait", Cause{Kind: Waits, Reason: "OutOfcpu"}, v1.PodPending, nil, v1.PodPending, metav1.Time{}},
	} {
		shared := slices.Clone(tc.conditions)
		st := v1.PodStatus{Phase: tc.phase, Conditions: tc.conditions}
		tc.cause.Apply(&st)
		i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget })
		if st.Phase != tc.want || (i >= 0) == tc.since.IsZero() || i >= 0 && !st.Conditions[i].LastTransitionTime.Equal(&tc.since) {
			t.Errorf("%s: %+v", tc.name, st)
		}
		if i >= 0 && !EndedByNode(&st) {
			t.Errorf("%s: the node has not ended it", tc.name)
		}
		if !slices.Equal(shared, tc.conditions) {
			t.Errorf("%s: conditions of somebody else were changed", tc.name)
		}
		if st.Reason != "" != tc.cause.Shows() {
			t.Errorf("%s: shows %v, reason %q", tc.name, tc.cause.Shows(), st.Reason)
		}
	}
	st := status()
	if (Cause{Kind: Rejected, Reason: "OutOfcpu", Message: "m"}).Apply(&st); st.Message != "Pod was rejected: m" || len(st.ContainerStatuses)+len(st.Conditions) > 0 {
		t.Errorf("rejected: %+v", st)
	}
}

func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		cause                      Cause
		eventType, reason, message string
	}{
		{Cause{Kind: Rejected, Reason: "OutOfcpu", Message: "m"}, "Warning", "OutOfcpu", "m"},
		{Cause{Kind: Waits, Reason: "OutOfcpu", Message: "m"}, "Normal", "AdmissionWaits", "OutOfcpu: m"},
		{Cause{Kind: Preempted}, "Warning", "Preempting", "Preempted in order to admit critical pod"},
		{Cause{Kind: DeadlineExceeded}, "Normal", "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"},
		{Cause{Kind: Shutdown}, "", "Terminated", "Pod was terminated in response to imminent node shutdown."},
		{Cause{}, "", "", ""},
	} {
		if typ, reason, message := tc.cause.Event(); typ != tc.eventType || reason != tc.reason || message != tc.message {
			t.Errorf("%+v: %q, %q, %q", tc.cause, typ, reason, message)
		}
	}
}

// Each start that fails has its event, and a reason that is its kind, but for images: their
// reasons are those of the pulls.
func TestContainerEvents(t *testing.T) {
	for kind, want := range map[Kind][2]string{
		CrashLoop:     {"BackOff", "Back-off restarting failed container c in pod p_ns(uid)"},
		ImageFailed:   {"Failed", "Error: ErrImagePull"},
		ConfigFailed:  {"Failed", "Error: no such key"},
		CreateFailed:  {"Failed", "Error: no such key"},
		RunFailed:     {"Failed", "Error: no such key"},
		HookFailed:    {"FailedPostStartHook", "PostStartHook failed"},
		SandboxFailed: {"FailedCreatePodSandBox", "Failed to create pod sandbox: no such key"},
	} {
		why := Cause{Kind: kind, Message: "no such key"}
		if kind == ImageFailed {
			why.Reason = "ErrImagePull"
		} else if kind.Reason() != string(kind) {
			t.Errorf("%s: reason %q", kind, kind.Reason())
		}
		typ, reason, message := why.ContainerEvent("c", "p_ns(uid)")
		if typ != v1.EventTypeWarning || reason != want[0] || message != want[1] {
			t.Errorf("%s: %q, %q, %q", kind, typ, reason, message)
		}
		if why.Shows() {
			t.Errorf("%s shows in the pod's status", kind)
		}
	}
}

func TestReturns(t *testing.T) {
	static := func(p v1.RestartPolicy) *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: p}}
		pod.Annotations = map[string]string{podmeta.AnnotationSource: "file"}
		return pod
	}
	for _, tc := range []struct {
		kind          Kind
		policy, never bool
	}{
		{Evicted, true, false}, {OverLimit, true, false}, {Preempted, true, false}, {Shutdown, true, true}, {Rejected, true, true},
		{DeadlineExceeded, false, false}, {VolumesExhausted, false, false}, {"", true, true},
	} {
		c := Cause{Kind: tc.kind}
		if c.Returns(static(v1.RestartPolicyAlways)) != tc.policy || c.Returns(static(v1.RestartPolicyNever)) != tc.never {
			t.Errorf("%q: %v, with policy Never %v", tc.kind, c.Returns(static(v1.RestartPolicyAlways)), c.Returns(static(v1.RestartPolicyNever)))
		}
		if c.Returns(&v1.Pod{}) != (tc.kind == "") {
			t.Errorf("%q: a pod of an API server", tc.kind)
		}
	}
}

func TestEvicts(t *testing.T) {
	for _, k := range kinds {
		if want := k == Evicted || k == OverLimit || k == Preempted; (Cause{Kind: k}).Evicts() != want {
			t.Errorf("%s: %v", k, !want)
		}
	}
}
