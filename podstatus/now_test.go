package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/observed"
)

// Who does not say what time it is gets no status of the year 1.
func TestStatusWithoutNow(t *testing.T) {
	created, asked, now := time.Unix(1000, 0), time.Unix(2000, 500), time.Unix(3000, 0)
	for name, c := range map[string]struct {
		created, asked, now, want time.Time
	}{
		"now":                        {created, asked, now, now},
		"when the runtime was asked": {created, asked, time.Time{}, time.Unix(2000, 0)},
		"when the pod was created":   {created, time.Time{}, time.Time{}, created},
		"no time at all":             {},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(c.created)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
		st := Of(Input{
			Pod: pod, Observed: &observed.Pod{ObservedAt: c.asked}, Now: c.now,
			Resize: []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue}},
		})
		if c.want.IsZero() != (st.StartTime == nil) || st.StartTime != nil && !st.StartTime.Time.Equal(c.want) {
			t.Errorf("%s: started %v, want %v", name, st.StartTime, c.want)
		}
		for _, cond := range st.Conditions {
			if got := cond.LastTransitionTime; got.IsZero() != c.want.IsZero() || !got.IsZero() && !got.Time.Equal(c.want) {
				t.Errorf("%s: %s changed %v, want %v", name, cond.Type, got, c.want)
			}
		}
	}
}
