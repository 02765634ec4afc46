package resources_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/agenttest"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/agent/resources"
	"github.com/nodewright/nodewright/checkpoint/checkpointtest"
	"github.com/nodewright/nodewright/podruntime"
	"github.com/nodewright/nodewright/podworker"
)

func TestDecisions(t *testing.T) {
	n := restored(t, &checkpointtest.Disk{})
	a, b := resizeSized("a", "1Gi"), resizeSized("b", "1Gi")
	for _, pod := range []*v1.Pod{a, b} {
		n.Recall(pod, nothing(pod))
		n.edit(pod)
	}
	n.wantCalls()

	a = resizeSized("a", "2Gi")
	if got := n.edit(a); got != a { // there is room
		t.Error("the newest version does not run")
	}
	n.wantConditions(a.UID, "PodResizeInProgress")
	n.wantCalls("event default/a Normal ResizeStarted: Pod resize started")

	b = resizeSized("b", "3Gi")
	n.wantRuns(n.edit(b), "1Gi") // beside a, there is not
	n.wantConditions(b.UID, "PodResizePending Deferred not enough memory")
	n.wantCalls("event default/b Warning ResizeDeferred: not enough memory", "resync uid-b")
	n.wantRuns(n.Changed(b), "1Gi")
	n.wantCalls() // it is no news
	if got := n.Explain(b); got != "its resources (PodResizePending Deferred not enough memory)" {
		t.Errorf("explained by %q", got)
	}
	if got := n.value("kubelet_pod_pending_resizes{deferred}"); got != 1 {
		t.Errorf("%v resizes are pending", got)
	}

	n.edit(resizeSized("a", "1Gi")) // what a gives back, b gets
	n.host.Calls()
	n.Housekeep(nil)
	n.wantConditions(b.UID, "PodResizeInProgress")
	n.wantCalls("event default/b Normal ResizeStarted: Pod resize started", "update default/b")
	n.wantRuns(n.Allocated(b), "3Gi")

	n.wantRuns(n.edit(resizeSized("a", "5Gi")), "1Gi") // more than the node has
	n.wantConditions(a.UID, "PodResizePending Infeasible the node has 4Gi; PodResizeInProgress")
	asked := 0
	n.host.OnCheckResize(func(_, _ *v1.Pod) (string, string) { asked++; return v1.PodReasonInfeasible, "the node has 4Gi" })
	n.Housekeep(nil)
	if asked != 0 {
		t.Error("an infeasible resize is checked again")
	}
	n.wantCalls("event default/a Warning ResizeInfeasible: the node has 4Gi", "resync uid-a")
	n.edit(resizeSized("a", "1Gi")) // it is no longer asked for
	n.wantConditions(a.UID, "PodResizeInProgress")
	for metric, want := range map[string]float64{
		"kubelet_pod_pending_resizes{deferred}": 0, "kubelet_pod_pending_resizes{infeasible}": 0, "kubelet_pod_in_progress_resizes{}": 2,
		"kubelet_container_requested_resizes_total{increase,requests,memory}": 3,
		"kubelet_container_requested_resizes_total{decrease,limits,memory}":   2,
		"kubelet_pod_infeasible_resizes_total{parttest}":                      1, // looked at twice, and counted once
		"kubelet_pod_deferred_accepted_resizes_total{periodic_retry}":         1,
	} {
		if got := n.value(metric); got != want {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
}

// Until every source has spoken, nothing is decided; so it is for a pod of which
// is not known what runs.
func TestDecisionsWait(t *testing.T) {
	p, err := resources.NewResize(resources.ResizeConfig{Store: &checkpointtest.Disk{}})
	if err != nil {
		t.Fatal(err)
	}
	n := &resizeNode{Resize: p, t: t, host: agenttest.NewHost(t)}
	if err := p.Join(n.host); err != nil {
		t.Fatal(err)
	}
	if err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := resizeSized("a", "1Gi"), resizeSized("b", "1Gi")
	n.Recall(a, nothing(a))
	listed := runs(b, "1Gi")
	listed.Containers[0].Name = ""
	n.Recall(b, listed)
	a, b = resizeSized("a", "2Gi"), resizeSized("b", "2Gi")
	n.wantRuns(n.edit(a), "1Gi")
	n.wantRuns(n.edit(b), "1Gi")
	n.Housekeep(nil)
	n.wantCalls()
	n.host.Settle()
	n.Housekeep(nil)
	n.wantCalls("event default/a Normal ResizeStarted: Pod resize started", "update default/a")
	n.Learn(b.UID, runs(b, "1Gi"))
	n.Learn(a.UID, runs(a, "1Gi")) // known already
	n.wantCalls("housekeep")
	n.Housekeep(nil)
	n.wantCalls("event default/b Normal ResizeStarted: Pod resize started", "update default/b")
}

// What takes no more than it has comes first, then priority, Guaranteed pods,
// and who has waited longest.
func TestOrderOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := restored(t, &checkpointtest.Disk{})
		full := true
		n.host.OnCheckResize(func(_, _ *v1.Pod) (string, string) {
			if full {
				return v1.PodReasonDeferred, "not enough memory"
			}
			return "", ""
		})
		important := int32(1000)
		burstable := func(pod *v1.Pod) *v1.Pod {
			delete(pod.Spec.Containers[0].Resources.Limits, v1.ResourceMemory)
			return pod
		}
		guaranteed := func(pod *v1.Pod) *v1.Pod {
			for _, list := range []v1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
				list[v1.ResourceCPU] = list[v1.ResourceMemory]
			}
			return pod
		}
		plain := func(pod *v1.Pod) *v1.Pod { return burstable(pod) }
		prior := func(pod *v1.Pod) *v1.Pod { pod.Spec.Priority = &important; return burstable(pod) }
		for _, p := range []struct {
			name string
			size string
			with func(*v1.Pod) *v1.Pod
		}{{"early", "3Gi", plain}, {"late", "3Gi", plain}, {"guaranteed", "3Gi", guaranteed}, {"prior", "3Gi", prior}, {"less", "1Gi", plain}, {"ending", "3Gi", prior}} {
			pod := p.with(resizeSized(p.name, "2Gi"))
			n.Recall(pod, nothing(pod))
			n.edit(p.with(resizeSized(p.name, p.size)))
			time.Sleep(time.Minute)
		}
		n.host.SetWorker(podworker.Status{UID: "uid-ending", TerminatingAt: time.Now()})
		n.host.Calls()
		full = false
		n.Housekeep(nil)
		var got []string
		for _, call := range n.host.Calls() {
			if name, ok := strings.CutPrefix(call, "update default/"); ok {
				got = append(got, name)
			}
		}
		if want := "less prior guaranteed early late"; strings.Join(got, " ") != want {
			t.Errorf("order %v, want %s", got, want)
		}
	})
}

type failure struct{ error }

func (failure) Reason() string { return podruntime.ReasonResize }

// A resize goes on with the syncs of the version that was allocated.
func TestProgress(t *testing.T) {
	n := restored(t, &checkpointtest.Disk{})
	old := resizeSized("a", "1Gi")
	n.Recall(old, nothing(old))
	a := resizeSized("a", "2Gi")
	n.edit(a)
	n.host.Calls()
	resizes := podruntime.Result{Resizes: true}

	if n.Synced(old, &podruntime.Result{}, nil) {
		t.Error("a sync of the version before is news")
	}
	n.wantConditions(a.UID, "PodResizeInProgress")
	if n.sync(a, resizes, true) {
		t.Error("that it goes on is news")
	}
	failed := podruntime.Result{Resizes: true, Actions: []podruntime.ActionResult{
		{Err: errors.New("other")}, {Err: failure{errors.New("below current usage")}},
	}}
	if !n.sync(a, failed, true) || n.sync(a, failed, true) {
		t.Error("want news of the failure once")
	}
	n.wantConditions(a.UID, "PodResizeInProgress Error below current usage")
	if !n.sync(a, resizes, false) || n.sync(a, podruntime.Result{}, false) {
		t.Error("want news of the end once")
	}
	n.wantConditions(a.UID, "")
	n.wantCalls("event default/a Warning ResizeError: below current usage", "event default/a Normal ResizeCompleted: Pod resize completed")
}

// Of a pod that has ended nothing waits and nothing is resized.
func TestStoppedAndSwept(t *testing.T) {
	n := restored(t, &checkpointtest.Disk{})
	for _, name := range []string{"a", "b"} {
		pod := resizeSized(name, "1Gi")
		n.Recall(pod, nothing(pod))
		n.edit(resizeSized(name, "2Gi"))
		n.edit(resizeSized(name, "5Gi"))
	}
	n.wantConditions("uid-a", "PodResizePending Infeasible the node has 4Gi; PodResizeInProgress")
	if err := n.Stopped(t.Context(), part.Ref{UID: "uid-a"}); err != nil {
		t.Error(err)
	}
	n.wantConditions("uid-a", "")
	if err := n.Sweep(t.Context(), knows("uid-a")); err != nil {
		t.Error(err)
	}
	n.wantConditions("uid-b", "")
	for _, metric := range []string{"kubelet_pod_pending_resizes{infeasible}", "kubelet_pod_in_progress_resizes{}"} {
		if got := n.value(metric); got != 0 {
			t.Errorf("%s = %v", metric, got)
		}
	}
}

func TestConfigAndJoin(t *testing.T) {
	n := resizeStart(t, &checkpointtest.Disk{})
	clash := prometheus.NewRegistry()
	clash.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_pod_infeasible_resizes_total", Help: "another"}))
	_, err := resources.NewResize(resources.ResizeConfig{Metrics: clash})
	if err == nil || !strings.Contains(err.Error(), "ResizeConfig.Store") || !strings.Contains(err.Error(), "previously registered") {
		t.Errorf("want both mistakes: %v", err)
	}
	if err := n.Join(n.host); err == nil {
		t.Error("joined twice")
	}
	p, err := resources.NewResize(resources.ResizeConfig{Store: &checkpointtest.Disk{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Join(struct{ part.Host }{n.host}); err == nil || !strings.Contains(err.Error(), "part.Resizes") {
		t.Errorf("joined a host without resizes: %v", err)
	}
	pod := resizeSized("a", "1Gi")
	if p.Allocated(pod) != pod || n.Changed(pod) != pod || n.Conditions(pod.UID) != nil {
		t.Error("a pod that was not recalled has something else than it asks for")
	}
}
