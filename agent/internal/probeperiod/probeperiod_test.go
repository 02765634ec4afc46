package probeperiod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/probe"
	"github.com/nodewright/nodewright/probe/check"
)

func TestProbePeriods(t *testing.T) {
	for _, tc := range []struct {
		key, value string
		want       time.Duration // of the container's readiness probe
		err        string
	}{
		{"readiness.c", "250ms", 250 * time.Millisecond, ""},
		{"readiness.c", "10ms", 10 * time.Millisecond, ""},
		{"readiness.c", "9ms", time.Second, `metadata.annotations[probe-period.nodewright.io/readiness.c]: "9ms": want a duration of 10ms or more`},
		{"readiness.c", "1", time.Second, `"1": want a duration`},
		{"liveness.c", "1s", time.Second, "no such probe"},
		{"readiness.d", "1s", time.Second, "no such probe"},
		{"ready.c", "1s", time.Second, "no such probe"},
		{"readiness", "1s", time.Second, "no such probe"},
	} {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Annotation + tc.key: tc.value, "other": "x"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", ReadinessProbe: &v1.Probe{}}}},
		}
		timing := check.Timing{Period: time.Second}
		Adjust(pod, &pod.Spec.Containers[0], probe.Readiness, &timing)
		if timing.Period != tc.want {
			t.Errorf("%s: %s: period %v, want %v", tc.key, tc.value, timing.Period, tc.want)
		}
		if err := Check(pod); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s: error %v, want %q", tc.key, tc.value, err, tc.err)
		}
	}
}
