package ocispec_test

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

func Example() {
	in := &ocispec.Input{
		ID:      "4f1c",
		Sandbox: &runtimeapi.PodSandboxConfig{Hostname: "web", Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod7"}},
		Container: &runtimeapi.ContainerConfig{
			Args: []string{"--port=80"},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			}},
		},
		Image:      ocispec.Image{Entrypoint: []string{"/server"}},
		Rootfs:     "/var/lib/node/containers/4f1c/rootfs",
		Namespaces: ocispec.Namespaces{Network: "/run/netns/a", IPC: "/run/node/ns/ipc", UTS: "/run/node/ns/uts"},
	}
	spec, err := ocispec.Compile(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(spec.Process.Args, spec.Linux.CgroupsPath)

	in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{OomScoreAdj: 2000}
	_, err = ocispec.Compile(in)
	fmt.Println(err)
	// Output:
	// [/server --port=80] /kubepods/pod7/4f1c
	// linux.resources.oom_score_adj 2000: must be from -1000 to 1000
}
