package cri_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
)

// The pods of a container runtime.
func Example() {
	list := func(ctx context.Context) error {
		client, err := cri.New(cri.Config{Endpoint: "unix:///run/containerd/containerd.sock"})
		if err != nil {
			return err
		}
		defer func() { _ = client.Close(ctx) }()
		sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{})
		if err != nil {
			return err
		}
		for _, s := range sandboxes {
			fmt.Println(s.Metadata.Namespace, s.Metadata.Name, s.State)
		}
		return nil
	}
	_ = list // needs a runtime
}
