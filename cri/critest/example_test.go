package critest_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri/critest"
)

// A container runtime in memory, for tests of whatever speaks CRI.
func Example() {
	ctx := context.Background()
	runtime := critest.New()
	runtime.AddImage("registry.example/app:1")
	pod := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}}
	sandbox, err := runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	container, err := runtime.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "registry.example/app:1"}, Args: []string{"sleep", "forever"},
	}, pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(runtime.StartContainer(ctx, container))
	all, err := runtime.ListContainers(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(all), all[0].State)
	// Output:
	// <nil>
	// 1 CONTAINER_RUNNING
}
