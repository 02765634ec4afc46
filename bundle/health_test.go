package bundle

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestTrial(t *testing.T) {
	pod := func(uid string, phase v1.PodPhase, ready bool, restarts int32, state v1.ContainerState) *v1.Pod {
		status := v1.ConditionFalse
		if ready {
			status = v1.ConditionTrue
		}
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
			Status: v1.PodStatus{
				Phase: phase, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: status}},
				ContainerStatuses: []v1.ContainerStatus{{Name: "c", Ready: ready, RestartCount: restarts, State: state}},
			},
		}
	}
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	crashes := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s\nrestarting"}}
	a, done := pod("a", v1.PodRunning, true, 0, runs), pod("b", v1.PodSucceeded, false, 0, v1.ContainerState{})
	type look struct {
		after time.Duration
		pods  []*v1.Pod
		want  verdict
		text  string
	}
	for name, looks := range map[string][]look{
		"ready for ten seconds": {
			{0, nil, waiting, "a is not known to the agent yet; b is not"},
			{5 * time.Second, []*v1.Pod{a, done}, waiting, "all pods are ready"},
			{14 * time.Second, []*v1.Pod{a, done}, waiting, ""},
			{15 * time.Second, []*v1.Pod{a, done}, healthy, ""},
		},
		"not ready in between": {
			{0, []*v1.Pod{a, done}, waiting, ""},
			{9 * time.Second, []*v1.Pod{pod("a", v1.PodRunning, false, 0, runs), done}, waiting, "a: container c is not ready"},
			{11 * time.Second, []*v1.Pod{a, done}, waiting, ""},
			{20 * time.Second, []*v1.Pod{a, done}, waiting, ""},
			{21 * time.Second, []*v1.Pod{a, done}, healthy, ""},
		},
		"restarts between looks": {
			{0, []*v1.Pod{a, done}, waiting, ""},
			{9 * time.Second, []*v1.Pod{pod("a", v1.PodRunning, true, 1, runs), done}, waiting, "containers restart"},
			{12 * time.Second, []*v1.Pod{pod("a", v1.PodRunning, true, 1, runs), done}, waiting, ""},
			{22 * time.Second, []*v1.Pod{pod("a", v1.PodRunning, true, 1, runs), done}, healthy, ""},
		},
		"too late": {
			{59 * time.Second, []*v1.Pod{pod("a", v1.PodRunning, false, 3, crashes), done}, waiting, "a: container c waits: CrashLoopBackOff: back-off 10s restarting"},
			{time.Minute, []*v1.Pod{pod("a", v1.PodRunning, false, 3, crashes), done}, failed, "not healthy within 1m0s: a: container c waits"},
		},
		"failed for good": {{time.Second, []*v1.Pod{a, pod("b", v1.PodFailed, false, 0, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}})}, failed, "pod b has failed: container c ended with code 3"}},
		"another pod":     {{time.Second, []*v1.Pod{a, pod("x", v1.PodFailed, false, 0, runs), done}, waiting, "all pods are ready"}},
	} {
		begin := time.Unix(1000, 0)
		tr := trial{rollout: Rollout{HealthyWithin: metav1.Duration{Duration: time.Minute}, ReadyFor: metav1.Duration{Duration: 10 * time.Second}}, begun: begin}
		for _, l := range looks {
			if got, text := tr.look(begin.Add(l.after), []*v1.Pod{a, done}, l.pods); got != l.want || !strings.Contains(text, l.text) {
				t.Errorf("%s: after %v: %d %q, want %d %q", name, l.after, got, text, l.want, l.text)
			}
		}
	}
}
