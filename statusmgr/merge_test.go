package statusmgr_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/statusmgr"
)

// says is a status in words: phase, reason and message, and each condition
// with its status and reason, by type.
func says(st v1.PodStatus) string {
	var conds []string
	for _, c := range st.Conditions {
		conds = append(conds, strings.TrimSuffix(fmt.Sprintf("%s=%s:%s", c.Type, c.Status, c.Reason), ":"))
	}
	slices.Sort(conds)
	return strings.Join(strings.Fields(fmt.Sprint(st.Phase, " ", st.Reason, " ", st.Message, " ", strings.Join(conds, " "))), " ")
}

// said is the reverse of says, for a status without reason and message.
func said(words string) (st v1.PodStatus) {
	for i, w := range strings.Fields(words) {
		typ, rest, ok := strings.Cut(w, "=")
		switch {
		case i == 0:
			st.Phase = v1.PodPhase(w)
		case ok:
			status, reason, _ := strings.Cut(rest, ":")
			st.Conditions = append(st.Conditions, v1.PodCondition{Type: v1.PodConditionType(typ), Status: v1.ConditionStatus(status), Reason: reason})
		case st.Reason == "":
			st.Reason = w
		default:
			st.Message = w
		}
	}
	return st
}

func TestMerge(t *testing.T) {
	const ready, unready = "ContainersReady=True Ready=True", "ContainersReady=False:PodFailed Ready=False:PodFailed"
	for _, tc := range []struct {
		name, api, ours string
		running         bool
		want            string
	}{
		{name: "identical", api: "Running " + ready, ours: "Running " + ready, want: "Running " + ready},
		{name: "failed by a disruption", api: "Running " + ready, ours: "Failed " + ready + " DisruptionTarget=True:TerminationByKubelet",
			want: "Failed ContainersReady=False:PodFailed DisruptionTarget=True:TerminationByKubelet Ready=False:PodFailed"},
		{name: "failed by a disruption, and may run", api: "Running " + ready, ours: "Failed " + ready + " DisruptionTarget=True:TerminationByKubelet",
			running: true, want: "Running " + ready},
		{name: "a disruption that only the API knows", api: "Running " + ready + " DisruptionTarget=True:EvictedByEvictionAPI", ours: "Running " + ready,
			want: "Running ContainersReady=True DisruptionTarget=True:EvictedByEvictionAPI Ready=True"},
		{name: "another disruption, failed", api: "Running " + ready + " DisruptionTarget=True:EvictedByEvictionAPI", ours: "Failed " + unready + " DisruptionTarget=True:TerminationByKubelet",
			want: "Failed ContainersReady=False:PodFailed DisruptionTarget=True:TerminationByKubelet Ready=False:PodFailed"},
		{name: "another disruption, running", api: "Running " + ready + " DisruptionTarget=True:EvictedByEvictionAPI", ours: "Running " + ready + " DisruptionTarget=True:TerminationByKubelet",
			want: "Running ContainersReady=True DisruptionTarget=True:EvictedByEvictionAPI Ready=True"},
		{name: "another disruption, failed, and may run", api: "Running " + ready + " DisruptionTarget=True:EvictedByEvictionAPI", ours: "Failed " + ready + " DisruptionTarget=True:TerminationByKubelet",
			running: true, want: "Running ContainersReady=True DisruptionTarget=True:EvictedByEvictionAPI Ready=True"},
		{name: "not ready", api: "Running " + ready, ours: "Running ContainersReady=False Ready=False", want: "Running ContainersReady=False Ready=False"},
		{name: "a foreign condition", api: "Running " + ready + " foreign=True", ours: "Running " + ready, want: "Running ContainersReady=True Ready=True foreign=True"},
		{name: "a foreign condition, and not ready", api: "Running " + ready + " foreign=True", ours: "Running ContainersReady=False Ready=False",
			want: "Running ContainersReady=False Ready=False foreign=True"},
		{name: "a foreign condition that differs", api: "Running " + ready + " foreign=True", ours: "Running " + ready + " foreign=False",
			want: "Running ContainersReady=True Ready=True foreign=True"},
		{name: "failed for a reason", api: "Running " + ready, ours: "Failed Evicted low-on-memory " + ready, want: "Failed Evicted low-on-memory " + unready},
		{name: "failed for a reason, and may run", api: "Running was so " + ready, ours: "Failed Evicted low-on-memory " + ready, running: true,
			want: "Running was so " + ready},
		// Beyond the reference's thirteen.
		{name: "succeeded", api: "Running " + ready, ours: "Succeeded " + ready, want: "Succeeded ContainersReady=False:PodCompleted Ready=False:PodCompleted"},
		{name: "ended already, and may run", api: "Failed a b", ours: "Failed c d", running: true, want: "Failed c d"},
		{name: "a foreign condition that the API took away", api: "Running", ours: "Running foreign=True", want: "Running"},
		{name: "one of ours that is gone", api: "Running PodResizePending=True", ours: "Running", want: "Running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api, ours := said(tc.api), said(tc.ours)
			a, o := api.DeepCopy(), ours.DeepCopy()
			if got := says(statusmgr.Merge(api, ours, tc.running)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if !reflect.DeepEqual(&api, a) || !reflect.DeepEqual(&ours, o) {
				t.Error("what was handed in was changed")
			}
		})
	}
}

func TestMergeKeepsIdenticalAsItIs(t *testing.T) {
	claim := "c"
	st := said("Running foreign=True Ready=True DisruptionTarget=True PodScheduled=True")
	st.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &claim}}
	if got := statusmgr.Merge(st, st, false); !reflect.DeepEqual(got, st) {
		t.Errorf("got %+v, want %+v", got, st)
	}
	mine := said("Running")
	got := statusmgr.Merge(st, mine, false)
	if !reflect.DeepEqual(got.ResourceClaimStatuses, st.ResourceClaimStatuses) {
		t.Errorf("claims %v, want the API's", got.ResourceClaimStatuses)
	}
}

func TestMergeDates(t *testing.T) {
	at := func(s int64) metav1.Time { return metav1.NewTime(time.Unix(s, 0)) }
	api := v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{
		{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "a", LastTransitionTime: at(1)}}}
	ours := v1.PodStatus{Phase: v1.PodFailed,
		Conditions: []v1.PodCondition{
			{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "b", LastTransitionTime: at(5)},
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at(2)}},
		ContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at(9)}}}}}
	got := statusmgr.Merge(api, ours, false)
	if c := got.Conditions[0]; c.Reason != "b" || !c.LastTransitionTime.Equal(&api.Conditions[0].LastTransitionTime) {
		t.Errorf("disruption %+v, want ours since the API's", c)
	}
	if c := got.Conditions[1]; c.Status != v1.ConditionFalse || c.LastTransitionTime.Unix() != 9 {
		t.Errorf("readiness %+v, want False since the last container ended", c)
	}
}
