package podstatus_test

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podstatus"
)

// A container has crashed and waits for its next start: its pod is Running all
// the same, and not ready.
func ExampleOf() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyAlways,
		Containers:    []v1.Container{{Name: "app", Image: "app:1"}, {Name: "web", Image: "web:1"}},
	}}
	status := podstatus.Of(podstatus.Input{
		Pod: pod,
		Observed: &observed.Pod{
			Sandboxes: []observed.Sandbox{{ID: "s", State: observed.Running, IPs: []string{"10.0.0.7"}}},
			Containers: []observed.Container{ // newest first
				{ID: "3", Name: "app", State: observed.Exited, ExitCode: new(int32(1)), RestartCount: 1},
				{ID: "2", Name: "web", State: observed.Running},
			},
		},
		StartErrors: map[string]podlife.Cause{"app": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		Now:         time.Now(),
	})
	fmt.Println(status.Phase, status.PodIP)
	for _, c := range status.ContainerStatuses {
		fmt.Printf("%s: ready %v, %d restarts\n", c.Name, c.Ready, c.RestartCount)
	}
	app := status.ContainerStatuses[0]
	fmt.Println(app.State.Waiting.Reason, "after exit code", app.LastTerminationState.Terminated.ExitCode)
	for _, c := range status.Conditions {
		if c.Type == v1.PodReady {
			fmt.Printf("%s %s: %s\n", c.Type, c.Status, c.Message)
		}
	}
	// Output:
	// Running 10.0.0.7
	// app: ready false, 1 restarts
	// web: ready true, 0 restarts
	// CrashLoopBackOff after exit code 1
	// Ready False: containers with unready status: [app]
}

// The same end means another phase by the restart policy, and by whether
// anything will be started any more.
func ExamplePhase() {
	failed := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "job", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}},
	}}}
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{Name: "job"}}}}
		fmt.Printf("%s: %s, and %s at the end\n", policy,
			podstatus.Phase(pod, failed, false, false), podstatus.Phase(pod, failed, true, false))
	}
	// Output:
	// Always: Running, and Failed at the end
	// Never: Failed, and Failed at the end
}
