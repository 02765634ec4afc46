package nodeagent

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pods without a place on the node are shown once, with their reason.
func TestOnPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := New(t.Context(), virtual(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		waiter := &v1.Pod{Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "the node is cordoned: kubectl uncordon vm"},
		}}}
		waiter.Namespace, waiter.Name, waiter.UID = "default", "waiter", "u-waiter"
		list := func() []*v1.Pod { return []*v1.Pod{waiter} }
		n.OnPods(list)
		n.OnPods(list)
		n.OnPods(func() []*v1.Pod { return nil })
		var uids []types.UID
		for _, p := range (shown{n}).Pods() {
			uids = append(uids, p.UID)
		}
		if !slices.Equal(uids, []types.UID{"u-waiter"}) {
			t.Errorf("pods %q", uids)
		}
		w := n.Why(waiter)
		if got, want := w.Summary(), "is not up yet: it waits for a place on the node: the node is cordoned: kubectl uncordon vm"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
