package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// syncs counts the calls for pods that run, so far.
func syncs(t *testing.T, reg prometheus.Gatherer) (n uint64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kubelet_pod_worker_duration_seconds" {
			continue
		}
		for _, m := range f.Metric {
			n += m.GetHistogram().GetSampleCount()
		}
	}
	if n == 0 {
		t.Fatal("no syncs were counted")
	}
	return n
}

// A start takes two syncs: one that makes the containers, and one that sees them run. The
// status that comes back from an API server then has no news, unless somebody else
// wrote to it.
func TestAnEchoIsNoSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		reg := prometheus.NewRegistry()
		n.metrics = reg
		web := newPod("web", runs("c"))
		n.want = []*v1.Pod{web}
		l := n.start()
		settle()
		before := syncs(t, reg)
		if before > 2 {
			t.Errorf("%d syncs until the pod ran; want 2", before)
		}
		shows := func(change func(*v1.PodStatus)) uint64 {
			t.Helper()
			now := web.DeepCopy()
			now.Status = *l.pod("web").Status.DeepCopy()
			change(&now.Status)
			n.want = []*v1.Pod{now}
			l.tell()
			settle()
			all := syncs(t, reg)
			defer func() { before = all }()
			return all - before
		}
		if got := shows(func(*v1.PodStatus) {}); got != 0 {
			t.Errorf("the pod's own status came back: %d syncs, want none", got)
		}
		for _, is := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
			condition := v1.PodCondition{Type: "example.com/gate", Status: is, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
			if got := shows(func(st *v1.PodStatus) {
				st.Conditions = append(ofNode(st.Conditions), condition)
			}); got != 1 {
				t.Errorf("a condition of others is %s: %d syncs, want 1", is, got)
			}
			if all := l.pod("web").Status.Conditions; len(all) != len(ofNode(all))+1 {
				t.Errorf("a condition of others is %s: the status has %+v", is, all)
			}
		}
		if got := shows(func(*v1.PodStatus) {}); got != 0 {
			t.Errorf("the pod's own status came back with the condition of others: %d syncs, want none", got)
		}
		l.stop()
	})
}

// ofNode are the conditions but that of the test.
func ofNode(all []v1.PodCondition) (out []v1.PodCondition) {
	for _, c := range all {
		if c.Type != "example.com/gate" {
			out = append(out, c)
		}
	}
	return out
}
