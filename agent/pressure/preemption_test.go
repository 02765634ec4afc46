package pressure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/pressure"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podmeta"
)

func preemptionPod(name, source string, priority int32, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{podmeta.AnnotationSource: source}},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func newPart(t *testing.T, cfg pressure.PreemptionConfig) (*pressure.Preemption, *agenttest.Host) {
	t.Helper()
	p, err := pressure.NewPreemption(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := agenttest.NewHost(t)
	if err := p.Join(h); err != nil {
		t.Fatal(err)
	}
	if err := p.Join(h); err == nil {
		t.Error("one part joined twice")
	}
	return p, h
}

const system = 2_000_000_000

// Only critical pods have others end; on a node that stands alone those of high
// priority alone.
func TestForWhomPodsEnd(t *testing.T) {
	missing := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for _, tc := range []struct {
		name       string
		standalone bool
		pod, other *v1.Pod
		want       bool
	}{
		{"a system pod", false, preemptionPod("p", "api", system, "1"), preemptionPod("o", "api", 0, "1"), true},
		{"a static pod", false, preemptionPod("p", "file", 0, "1"), preemptionPod("o", "api", 0, "1"), true},
		{"an ordinary pod", false, preemptionPod("p", "api", 7, "1"), preemptionPod("o", "api", 0, "1"), false},
		{"another that has too little", false, preemptionPod("p", "file", 0, "1"), preemptionPod("o", "api", 0, "999m"), false},
		{"another static pod", false, preemptionPod("p", "file", 0, "1"), preemptionPod("o", "file", 0, "1"), false},
		{"alone, a static pod", true, preemptionPod("p", "file", 0, "1"), preemptionPod("o", "file", 0, "1"), false},
		{"alone, a static pod of a higher priority", true, preemptionPod("p", "file", 7, "1"), preemptionPod("o", "file", 0, "1"), false},
		{"alone, a system pod", true, preemptionPod("p", "file", system, "1"), preemptionPod("o", "file", 0, "1"), true},
	} {
		p, _ := newPart(t, pressure.PreemptionConfig{Standalone: tc.standalone})
		if got := len(p.Victims(tc.pod, []*v1.Pod{tc.other}, missing)) == 1; got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// How a victim ends, what is published of it, and what is counted.
func TestHowVictimsEnd(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		counted float64
		event   bool
	}{
		{"it ends", nil, 1, false},
		{"it does not end in time", context.DeadlineExceeded, 0, true},
		{"it cannot be ended", errors.New("x"), 0, false},
		{"the agent ends", context.Canceled, 0, false},
	} {
		reg := prometheus.NewRegistry()
		p, h := newPart(t, pressure.PreemptionConfig{Metrics: reg})
		victim := preemptionPod("o", "api", 0, "1")
		victim.Spec.TerminationGracePeriodSeconds = new(int64(7))
		how, ended := p.Preempt(preemptionPod("p", "file", 0, "1"), victim, v1.ResourceList{v1.ResourceMemory: {}, v1.ResourceCPU: {}})
		if podlife.GraceSeconds(victim, how) != 7 || !how.Evicts() {
			t.Errorf("%s: ends by %+v", tc.name, how)
		}
		st := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionFalse}}}
		was := slices.Clone(st.Conditions)
		shared := st.Conditions
		how.Apply(&st)
		if c := st.Conditions[0]; st.Phase != v1.PodFailed || st.Reason != "Preempting" || len(st.Conditions) != 1 || c.Status != v1.ConditionTrue || c.Reason != "TerminationByKubelet" {
			t.Errorf("%s: status %+v", tc.name, st)
		}
		if !slices.Equal(shared, was) {
			t.Errorf("%s: conditions of somebody else were changed", tc.name)
		}
		ended(tc.err)
		events := h.Calls()
		has := func(reason string) bool {
			return slices.ContainsFunc(events, func(s string) bool { return strings.Contains(s, reason) })
		}
		if !has("Preempting") || has("ExceededGracePeriod") != tc.event {
			t.Errorf("%s: events %q", tc.name, events)
		}
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, f := range all {
			if m := f.GetMetric()[0]; f.GetName() == "kubelet_preemptions" && m.GetLabel()[0].GetValue() == "cpu" {
				got = m.GetCounter().GetValue()
			}
		}
		if got != tc.counted {
			t.Errorf("%s: %v are counted, want %v", tc.name, got, tc.counted)
		}
	}
}

// A static victim begins again when the pod that it ended for is gone, and no other
// does.
func TestStaticVictimsBeginAgain(t *testing.T) {
	held := false
	p, h := newPart(t, pressure.PreemptionConfig{Standalone: true, Hold: func() bool { return held }})
	for_, victim, other := preemptionPod("p", "file", system, "1"), preemptionPod("o", "file", 0, "1"), preemptionPod("x", "api", 0, "1")
	h.SetPods(for_, victim, other)
	st := v1.PodStatus{Phase: v1.PodRunning}
	how, _ := p.Preempt(for_, victim, v1.ResourceList{v1.ResourceCPU: {}})
	how.Apply(&st)
	again := func(want bool, why string) {
		t.Helper()
		if got := revives(p, victim, &st); got != want {
			t.Errorf("%s: begins again: %v", why, got)
		}
	}
	again(false, "the other is wanted")
	if !strings.Contains(p.Explain(victim), "default/p") || p.Explain(other) != "" {
		t.Errorf("explained by %q and %q", p.Explain(victim), p.Explain(other))
	}
	h.SetStatus(for_.UID, v1.PodStatus{Phase: v1.PodRunning})
	again(false, "the other runs")
	p.Housekeep([]*v1.Pod{for_, victim})
	again(false, "still known")
	h.SetStatus(for_.UID, v1.PodStatus{Phase: v1.PodSucceeded})
	held = true
	again(false, "the machine goes down")
	held = false
	again(true, "the other has ended")
	if revives(p, other, &st) || revives(p, victim, &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}) {
		t.Error("a pod begins again that was not preempted, or that somebody makes again")
	}
	again(false, "of a life before, and it is not known yet what runs")
	h.Settle()
	again(true, "of a life before")
	victim.Spec.RestartPolicy = v1.RestartPolicyNever
	again(false, "it is never to be restarted")
	p.Preempt(for_, victim, v1.ResourceList{v1.ResourceCPU: {}})
	p.Housekeep(nil)
	if p.Explain(victim) != "" {
		t.Error("a pod that is gone is remembered")
	}
}

func TestTwoPartsOfOneRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	newPart(t, pressure.PreemptionConfig{Metrics: reg})
	if _, err := pressure.NewPreemption(pressure.PreemptionConfig{Metrics: reg}); err != nil {
		t.Errorf("a second one on the same registry: %v", err)
	}
}
