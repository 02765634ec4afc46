package podruntime_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/podruntime"
)

// What to do next is decided by what there is, and by nothing else.
func ExamplePlan() {
	pod := &v1.Pod{Spec: v1.PodSpec{
		RestartPolicy:  v1.RestartPolicyAlways,
		InitContainers: []v1.Container{{Name: "migrate", Image: "db:1"}},
		Containers:     []v1.Container{{Name: "app", Image: "app:1"}, {Name: "web", Image: "web:1"}},
	}}
	obs := &observed.Pod{}
	tell := func(when string) {
		a := podruntime.Plan(podruntime.PlanInput{Pod: pod, Observed: obs})
		fmt.Printf("%s: new sandbox %v, start init %v, start regular %v\n", when, a.CreateSandbox, a.Init, a.Regular)
	}
	tell("nothing there")

	obs.Sandboxes = []observed.Sandbox{{ID: "s", State: observed.Running}}
	obs.Containers = []observed.Container{{ID: "1", Name: "migrate", SandboxID: "s", State: observed.Running}}
	tell("init runs")

	obs.Containers[0].State, obs.Containers[0].ExitCode = observed.Exited, new(int32)
	tell("init succeeded")

	obs.Containers = append([]observed.Container{
		{ID: "3", Name: "web", SandboxID: "s", State: observed.Exited, ExitCode: new(int32(1))},
		{ID: "2", Name: "app", SandboxID: "s", State: observed.Running},
	}, obs.Containers...)
	tell("web crashed")
	// Output:
	// nothing there: new sandbox true, start init [0], start regular []
	// init runs: new sandbox false, start init [], start regular []
	// init succeeded: new sandbox false, start init [], start regular [0 1]
	// web crashed: new sandbox false, start init [], start regular [1]
}
