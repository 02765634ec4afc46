package ocispec

import (
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Whatever a CRI client sends is compiled or refused, and what is compiled can
// be written.
func FuzzCompile(f *testing.F) {
	in := input()
	mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h"}, "shared")
	c, _ := proto.Marshal(in.Container)
	s, _ := proto.Marshal(in.Sandbox)
	f.Add(c, s, []byte(`{"defaultAction":"SCMP_ACT_LOG"}`), true, true)
	f.Fuzz(func(t *testing.T, container, sandbox, profile []byte, systemd, v2 bool) {
		in := input()
		in.Container, in.Sandbox = &runtimeapi.ContainerConfig{}, &runtimeapi.PodSandboxConfig{}
		if proto.Unmarshal(container, in.Container) != nil || proto.Unmarshal(sandbox, in.Sandbox) != nil {
			return
		}
		in.SeccompProfile, in.Machine.Systemd, in.Machine.CgroupV2 = profile, systemd, v2
		for _, m := range in.Container.Mounts {
			in.Sources = append(in.Sources, Source{Path: m.GetHostPath(), Propagation: "shared"})
		}
		in.Devices = make([][]Device, len(in.Container.Devices))
		spec, err := Compile(in)
		if err != nil {
			if c := status.Code(err); c != codes.InvalidArgument && c != codes.FailedPrecondition {
				t.Errorf("code %v: %v", c, err)
			}
			return
		}
		if _, err := json.Marshal(spec); err != nil {
			t.Error(err)
		}
		if len(spec.Process.Args) == 0 || spec.Process.Cwd == "" || spec.Process.Cwd[0] != '/' || spec.Linux.CgroupsPath == "" {
			t.Errorf("process %+v, cgroup %q", spec.Process, spec.Linux.CgroupsPath)
		}
		if !in.privileged() && (len(spec.Linux.Resources.Devices) == 0 || spec.Linux.Resources.Devices[0].Allow) {
			t.Errorf("device rules %v", spec.Linux.Resources.Devices)
		}
	})
}
