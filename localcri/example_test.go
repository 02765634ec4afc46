//go:build linux

package localcri_test

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri"
)

// A pod is run without a daemon: the runtime is a value of this process.
func Example() {
	run := func(ctx context.Context, network localcri.Network, images localcri.Images) error {
		rt, err := localcri.New(localcri.Config{
			RootDir:  "/var/lib/agent/runtime",
			StateDir: "/run/agent/runtime",
			Handlers: map[string]localcri.Handler{"runc": {Path: "/usr/bin/runc"}},
			Network:  network,
			Images:   images,
		})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- rt.Run(ctx) }()
		pod := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"}, Hostname: "web", LogDirectory: "/var/log/pods/web",
		}
		sandbox, err := rt.RunPodSandbox(ctx, pod, "")
		if err != nil {
			return err
		}
		container, err := rt.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "server"}, Image: &runtimeapi.ImageSpec{Image: "busybox:1"}, Command: []string{"httpd", "-f"},
			LogPath: "server.log",
		}, pod)
		if err != nil {
			return err
		}
		if err := rt.StartContainer(ctx, container); err != nil {
			return err
		}
		out, _, err := rt.ExecSync(ctx, container, []string{"id"}, 0)
		fmt.Println(string(out), err)
		return <-ended
	}
	_ = run // needs root, runc, a network and images
}
