package query

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// While a container waits for its next start, the instance before is the newest one.
func TestWaits(t *testing.T) {
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for _, tc := range []struct {
		now, last v1.ContainerState
		want      bool
	}{
		{waiting, ended, true},
		{waiting, v1.ContainerState{}, false}, // it has not begun
		{ended, ended, false},
		{v1.ContainerState{Running: &v1.ContainerStateRunning{}}, ended, false},
	} {
		p := &v1.Pod{}
		p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "c", State: tc.now, LastTerminationState: tc.last}}
		if got := waits(p, "c"); got != tc.want || waits(p, "d") {
			t.Errorf("%+v after %+v: %t, want %t", tc.now, tc.last, got, tc.want)
		}
	}
}
