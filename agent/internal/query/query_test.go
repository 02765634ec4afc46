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

// A container that has not begun waits for the init container that runs, and for no sidecar.
func TestBefore(t *testing.T) {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}, {Name: "wait-db"}}}}
	if got := before(p); got != "" {
		t.Errorf("%q; want nothing", got)
	}
	p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "wait-db"}, {Name: "side", State: running}}
	if got := before(p); got != "" {
		t.Errorf("%q; want nothing, since a sidecar runs beside", got)
	}
	p.Status.InitContainerStatuses[0].State = running
	if got, want := before(p), ", as init container wait-db still runs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
