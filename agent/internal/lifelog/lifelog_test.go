package lifelog

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLines(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	start := metav1.NewTime(at.Add(-1200 * time.Millisecond))
	status := func(phase v1.PodPhase, ready v1.ConditionStatus, c v1.ContainerStatus) *v1.PodStatus {
		c.Name = "c"
		return &v1.PodStatus{Phase: phase, StartTime: &start, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}, ContainerStatuses: []v1.ContainerStatus{c}}
	}
	running := v1.ContainerStatus{ContainerID: "x://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "x://1", ExitCode: 3, Reason: "Error", StartedAt: start, FinishedAt: metav1.NewTime(start.Add(100 * time.Millisecond))}}
	died := v1.ContainerStatus{ContainerID: "x://1", State: end}
	again := v1.ContainerStatus{ContainerID: "x://2", RestartCount: 1, State: running.State, LastTerminationState: end}
	for _, tc := range []struct {
		name        string
		before, now *v1.PodStatus
		want        []string
	}{
		{"start", &v1.PodStatus{}, status(v1.PodRunning, "False", running), []string{"container started container=c restarts=0"}},
		{"ready", status(v1.PodRunning, "False", running), status(v1.PodRunning, "True", running), []string{"pod ready took=1.2s"}},
		{"nothing", status(v1.PodRunning, "True", running), status(v1.PodRunning, "True", running), nil},
		{"end", status(v1.PodRunning, "True", running), status(v1.PodRunning, "False", died), []string{"container ended after=100ms container=c exit=3 reason=Error restarts=0", "pod not ready"}},
		{"restart after an end that was told", status(v1.PodRunning, "False", died), status(v1.PodRunning, "False", again), []string{"container started container=c restarts=1"}},
		{"end and restart at once", status(v1.PodRunning, "True", running), status(v1.PodRunning, "True", again),
			[]string{"container ended after=100ms container=c exit=3 reason=Error restarts=1", "container started container=c restarts=1"}},
		{"end of the pod", status(v1.PodRunning, "False", died), status(v1.PodFailed, "False", died), []string{"pod ended phase=Failed"}},
	} {
		var got []string
		for _, l := range lines(tc.before, tc.now, at) {
			enc := zapcore.NewMapObjectEncoder()
			for _, f := range l.fields {
				f.AddTo(enc)
			}
			got = append(got, []string{"container started", "container ended", "pod ready", "pod not ready", "pod ended"}[l.fact]+fieldsOf(enc.Fields))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func fieldsOf(m map[string]any) string {
	out := ""
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out += fmt.Sprintf(" %s=%v", key, m[key])
	}
	return out
}
