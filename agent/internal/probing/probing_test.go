package probing_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/agent/internal/probing"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/statusmgr"
)

// An agent that lost its journal of results, and has no status of before its start, goes
// on with what the API server shows of containers that run already.
func TestApplyAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes, err := probe.New(probe.Config{})
		if err != nil {
			t.Fatal(err)
		}
		statuses, err := statusmgr.New(statusmgr.Config{})
		if err != nil {
			t.Fatal(err)
		}
		yes := true
		check := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "was", ReadinessProbe: check, StartupProbe: check}, {Name: "other", ReadinessProbe: check}}},
			Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
				{Name: "was", ContainerID: "x://1", Ready: true, Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
				{Name: "other", ContainerID: "x://0", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
			}},
		}
		probes.Observe(podlife.Life{UID: pod.UID}, pod, &observed.Pod{UID: "p", Containers: []observed.Container{
			{ID: "1", Name: "was", State: observed.Running, StartedAt: time.Now()}, {ID: "2", Name: "other", State: observed.Running, StartedAt: time.Now()},
		}})
		// Without an answer of the API server the pod has the status that was remembered.
		for _, known := range []bool{true, false} {
			published := func(p *v1.Pod) (*v1.PodStatus, bool) { return &p.Status, known }
			in := podstatus.Input{Pod: pod}
			probing.Apply(probes, statuses, published, "p", &in)
			if !in.Ready("1") || !in.Started("1") {
				t.Errorf("one that was ready: ready %v, started %v", in.Ready("1"), in.Started("1"))
			}
			if in.Ready("2") {
				t.Error("another container than the one that was ready is ready")
			}
			st := pod.Status.DeepCopy()
			if guess := probing.Refresh(probes, published, pod, st); guess == known {
				t.Errorf("what others see is known: %t, and the status is a guess: %t", known, guess)
			}
		}
		// What others see counts more than a guess of the time when it was not known.
		guess := *pod.Status.DeepCopy()
		no := false
		guess.ContainerStatuses[0].Ready, guess.ContainerStatuses[0].Started = false, &no
		statuses.Set(pod, *guess.DeepCopy())
		published := func(p *v1.Pod) (*v1.PodStatus, bool) { return &p.Status, true }
		in := podstatus.Input{Pod: pod}
		probing.Apply(probes, statuses, published, "p", &in)
		if !in.Ready("1") || !in.Started("1") {
			t.Error("unready by a guess, and others see it ready")
		}
		again := guess.DeepCopy()
		if probing.Refresh(probes, published, pod, again); !again.ContainerStatuses[0].Ready || !*again.ContainerStatuses[0].Started {
			t.Errorf("still what was guessed: %+v", again.ContainerStatuses[0])
		}
	})
}

// answering has every command succeed.
type answering struct{}

func (answering) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return nil, nil, nil
}

// A status that was computed before a result came does not take it back.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes, err := probe.New(probe.Config{Exec: answering{}})
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, probes.Run)
		check := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"x"}}}, PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", ReadinessProbe: check}}},
		}
		obs := &observed.Pod{UID: "p", Containers: []observed.Container{{ID: "1", Name: "c", State: observed.Running, StartedAt: time.Now()}}}
		probes.Observe(podlife.Life{UID: pod.UID}, pod, obs)
		yes := true
		st := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", ContainerID: "x://1", Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}
		podstatus.SetReadiness(pod, &st, time.Now())
		time.Sleep(time.Minute)
		synctest.Wait()
		if probing.Refresh(probes, func(p *v1.Pod) (*v1.PodStatus, bool) { return nil, false }, pod, &st) {
			t.Error("a guess, and the probe has found out")
		}
		ready := false
		for _, c := range st.Conditions {
			ready = ready || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}
		if !st.ContainerStatuses[0].Ready || !ready {
			t.Errorf("status %+v", st)
		}
		stop()
	})
}
