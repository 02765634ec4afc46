package ocispec

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var known = []string{
	"CAP_AUDIT_WRITE", "CAP_BPF", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_ADMIN",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT",
}

// input is a container that any machine runs, in a pod with namespaces of its
// own.
func input() *Input {
	return &Input{
		ID: "c1",
		Sandbox: &runtimeapi.PodSandboxConfig{
			Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod1"},
		},
		Container: &runtimeapi.ContainerConfig{Command: []string{"/bin/app"}, Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		}},
		Rootfs:     "/r",
		Hostname:   "web",
		Namespaces: Namespaces{Network: "/n/net", IPC: "/n/ipc", UTS: "/n/uts"},
		Files:      Files{ResolvConf: "/s/resolv.conf", Hostname: "/s/hostname", Shm: "/s/shm"},
		Machine: Machine{
			Capabilities: known, Swap: true, HugePages: []string{"2MB"}, HugePagesLimited: true, LeastOOMScoreAdj: -500, RecursiveReadOnly: true,
			Seccomp: func(*specs.Spec) (*specs.LinuxSeccomp, error) {
				return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}, nil
			},
			AppArmor: true, AppArmorProfiles: []string{"mine"}, AppArmorDefault: "usual",
		},
		Handler: Handler{RecursiveReadOnly: true, IDMap: true},
	}
}

func (in *Input) sc() *runtimeapi.LinuxContainerSecurityContext {
	return in.Container.Linux.SecurityContext
}

// older sets the profile as agents before Kubernetes 1.30 do.
func older(in *Input, profile string) {
	in.sc().ApparmorProfile = profile //nolint:staticcheck // the field is still taken
}

func mount(in *Input, m *runtimeapi.Mount, propagation string) {
	in.Container.Mounts = append(in.Container.Mounts, m)
	in.Sources = append(in.Sources, Source{Path: m.HostPath, Propagation: propagation})
}

func usernsOf(m *runtimeapi.UserNamespace) func(*Input) {
	return func(in *Input) {
		in.Sandbox.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: m}}
		in.Namespaces.User = "/n/user"
	}
}

func TestCompile(t *testing.T) {
	pick := func(f func(s *specs.Spec) any) func(*specs.Spec) any { return f }
	args := pick(func(s *specs.Spec) any { return s.Process.Args })
	env := pick(func(s *specs.Spec) any { return s.Process.Env })
	caps := pick(func(s *specs.Spec) any { return strings.Join(s.Process.Capabilities.Bounding, " ") })
	namespaces := pick(func(s *specs.Spec) any {
		var out []string
		for _, n := range s.Linux.Namespaces {
			out = append(out, string(n.Type)+"="+n.Path)
		}
		return strings.Join(out, " ")
	})
	cgroup := pick(func(s *specs.Spec) any { return s.Linux.CgroupsPath })
	at := func(dest string) func(*specs.Spec) any {
		return func(s *specs.Spec) any {
			for _, m := range s.Mounts {
				if m.Destination == dest {
					return m.Type + " " + m.Source + " " + strings.Join(m.Options, ",")
				}
			}
			return "none"
		}
	}
	seccomp := pick(func(s *specs.Spec) any { return s.Linux.Seccomp != nil })
	apparmor := pick(func(s *specs.Spec) any { return s.Process.ApparmorProfile })
	score := pick(func(s *specs.Spec) any {
		if s.Process.OOMScoreAdj == nil {
			return nil
		}
		return *s.Process.OOMScoreAdj
	})
	resources := pick(func(s *specs.Spec) any {
		r := *s.Linux.Resources
		r.Devices = nil
		b, _ := json.Marshal(r)
		return string(b)
	})
	rules := pick(func(s *specs.Spec) any {
		b, _ := json.Marshal(s.Linux.Resources.Devices)
		return string(b)
	})
	const usualCaps = "CAP_AUDIT_WRITE CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_KILL CAP_MKNOD CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SETFCAP CAP_SETGID CAP_SETPCAP CAP_SETUID CAP_SYS_CHROOT"
	capability := func(add, drop, ambient string) func(*Input) {
		return func(in *Input) {
			in.sc().Capabilities = &runtimeapi.Capability{
				AddCapabilities: strings.Fields(add), DropCapabilities: strings.Fields(drop), AddAmbientCapabilities: strings.Fields(ambient),
			}
		}
	}
	for _, tc := range []struct {
		name string
		with func(*Input)
		what func(*specs.Spec) any
		want any
	}{
		{"command replaces the image's", func(in *Input) { in.Image.Entrypoint, in.Image.Cmd = []string{"e"}, []string{"c"} }, args, []string{"/bin/app"}},
		{"args follow the entrypoint", func(in *Input) {
			in.Container.Command, in.Container.Args, in.Image.Entrypoint, in.Image.Cmd = nil, []string{"a"}, []string{"e"}, []string{"c"}
		}, args, []string{"e", "a"}},
		{"the image's own", func(in *Input) {
			in.Container.Command, in.Image.Entrypoint, in.Image.Cmd = nil, []string{"e"}, []string{"c"}
		}, args, []string{"e", "c"}},
		{"environment", func(in *Input) {
			in.Image.Env = []string{"A=1", "PATH=/p", "broken", "B=x=y", "NUL=\x00"}
			in.Container.Envs = []*runtimeapi.KeyValue{{Key: "A", Value: []byte("2")}, {Key: "C"}}
		}, env, []string{"PATH=/p", "HOSTNAME=web", "A=2", "B=x=y", "C="}},
		{"terminal", func(in *Input) { in.Container.Tty = true }, env, []string{defaultPath, "TERM=xterm", "HOSTNAME=web"}},
		{"directory", func(in *Input) { in.Image.WorkingDir = "srv/../app" }, func(s *specs.Spec) any { return s.Process.Cwd }, "/app"},
		{"directory of the container", func(in *Input) { in.Image.WorkingDir, in.Container.WorkingDir = "/a", "/b" }, func(s *specs.Spec) any { return s.Process.Cwd }, "/b"},
		{"no score", nil, score, nil},
		{"score", func(in *Input) { in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{OomScoreAdj: -999} }, score, -500},

		{"capabilities", nil, caps, usualCaps},
		{"added and dropped", capability("net_admin CAP_BPF", "MKNOD kill", ""), caps, strings.NewReplacer("CAP_KILL CAP_MKNOD ", "CAP_NET_ADMIN ", "CAP_CHOWN", "CAP_BPF CAP_CHOWN").Replace(usualCaps)},
		{"all added, one dropped", capability("ALL", "SYS_ADMIN", ""), caps, strings.Replace(strings.Join(known, " "), "CAP_SYS_ADMIN ", "", 1)},
		{"all dropped, one added", capability("CHOWN", "all", ""), caps, "CAP_CHOWN"},
		{"dropped though unknown", capability("", "KILL MKNOD FLY", ""), caps, strings.Replace(usualCaps, "CAP_KILL CAP_MKNOD ", "", 1)},
		{"ambient", capability("", "ALL", "BPF"), func(s *specs.Spec) any { return s.Process.Capabilities.Ambient }, []string{"CAP_BPF"}},
		{"privileged", func(in *Input) { in.sc().Privileged = true }, caps, strings.Join(known, " ")},
		{"a kernel without one", func(in *Input) { in.Machine.Capabilities = []string{"CAP_CHOWN"} }, caps, "CAP_CHOWN"},

		{"namespaces", nil, namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid="},
		{"the node's", func(in *Input) {
			in.Sandbox.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}
			in.sc().NamespaceOptions = &runtimeapi.NamespaceOption{Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE}
		}, namespaces, "mount="},
		{"shared processes", func(in *Input) {
			in.sc().NamespaceOptions.Pid, in.Namespaces.PID = runtimeapi.NamespaceMode_POD, "/proc/7/ns/pid"
		}, namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid=/proc/7/ns/pid"},
		{"cgroup v2", func(in *Input) { in.Machine.CgroupV2 = true }, namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid= cgroup="},
		{"cgroup v2, privileged", func(in *Input) { in.Machine.CgroupV2, in.sc().Privileged = true, true }, namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid="},
		{"users", usernsOf(&runtimeapi.UserNamespace{Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}, Gids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}}),
			namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid= user=/n/user"},
		{"users of the node", usernsOf(&runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}), namespaces, "mount= network=/n/net uts=/n/uts ipc=/n/ipc pid="},

		{"cgroup", nil, cgroup, "/kubepods/pod1/c1"},
		{"cgroup without a parent", func(in *Input) { in.Sandbox.Linux.CgroupParent = "" }, cgroup, "/c1"},
		{"systemd", func(in *Input) { in.Machine.Systemd, in.Sandbox.Linux.CgroupParent = true, "kubepods-pod1.slice" }, cgroup, "kubepods-pod1.slice:nodewright:c1"},
		{"systemd without a parent", func(in *Input) { in.Machine.Systemd, in.Sandbox.Linux.CgroupParent = true, "" }, cgroup, "system.slice:nodewright:c1"},

		{"no resources", nil, resources, "{}"},
		{"resources", func(in *Input) {
			in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{
				CpuShares: 2, CpuPeriod: 100000, CpuQuota: -1, CpusetCpus: "0-1", MemoryLimitInBytes: 1 << 20,
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}},
			}
		}, resources, `{"memory":{"limit":1048576,"swap":1048576},"cpu":{"shares":2,"quota":-1,"period":100000,"cpus":"0-1"},"hugepageLimits":[{"pageSize":"2MB","limit":4194304}]}`},
		{"swap", func(in *Input) {
			in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 3 << 20}
		}, resources, `{"memory":{"limit":1048576,"swap":3145728}}`},
		{"no swap", func(in *Input) {
			in.Machine.Swap, in.Container.Linux.Resources = false, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 3 << 20}
		}, resources, `{"memory":{"limit":1048576}}`},
		{"unlimited pages without a controller", func(in *Input) {
			in.Machine.HugePagesLimited, in.Container.Linux.Resources = false, &runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}}}
		}, resources, "{}"},
		{"unified", func(in *Input) {
			in.Machine.CgroupV2, in.Container.Linux.Resources = true, &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}}
		}, resources, `{"unified":{"memory.high":"1"}}`},

		{"devices", func(in *Input) {
			in.Container.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/x", HostPath: "/dev/x", Permissions: "rw"}}
			in.Devices = [][]Device{{{Path: "/dev/x", Type: "c", Major: 1, Minor: 2, Mode: 0o660}}}
		}, rules, `[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":1,"minor":2,"access":"rw"}]`},
		{"all devices", func(in *Input) {
			in.sc().Privileged, in.Machine.Devices = true, []Device{{Path: "/dev/kvm", Type: "c"}}
		}, rules, `[{"allow":true,"access":"rwm"}]`},
		{"the nodes of all devices", func(in *Input) {
			in.sc().Privileged, in.Machine.Devices = true, []Device{{Path: "/dev/kvm", Type: "c"}}
		},
			func(s *specs.Spec) any { return len(s.Linux.Devices) }, 1},
		{"none of them", func(in *Input) {
			in.sc().Privileged, in.Machine.Devices, in.Handler.PrivilegedWithoutHostDevices = true, []Device{{Path: "/dev/kvm", Type: "c"}}, true
		}, func(s *specs.Spec) any { return len(s.Linux.Devices) }, 0},

		{"sysfs", nil, at("/sys"), "sysfs sysfs nosuid,noexec,nodev,ro"},
		{"sysfs of the privileged", func(in *Input) { in.sc().Privileged = true }, at("/sys"), "sysfs sysfs nosuid,noexec,nodev,rw"},
		{"shm", nil, at("/dev/shm"), "bind /s/shm rbind,rprivate,rw"},
		{"resolv.conf in a read-only root", func(in *Input) { in.sc().ReadonlyRootfs = true }, at("/etc/resolv.conf"), "bind /s/resolv.conf rbind,rprivate,ro"},
		{"covered", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "etc/resolv.conf", HostPath: "/mine", Readonly: true}, "private")
		}, at("/etc/resolv.conf"), "bind /mine rbind,rprivate,ro"},
		{"from the host", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, "slave")
		}, at("/m"), "bind /h rbind,rslave,rw"},
		{"root of mounts both ways", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, "shared")
		}, func(s *specs.Spec) any { return s.Linux.RootfsPropagation }, "rshared"},
		{"root of mounts from the host", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, "slave")
		}, func(s *specs.Spec) any { return s.Linux.RootfsPropagation }, "rslave"},
		{"root of other mounts", func(*Input) {}, func(s *specs.Spec) any { return s.Linux.RootfsPropagation }, ""},
		{"version", func(*Input) {}, func(s *specs.Spec) any { return s.Version }, "1.0.2"},
		{"version of mapped mounts", usernsOf(&runtimeapi.UserNamespace{
			Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}, Gids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}},
		}), func(s *specs.Spec) any { return s.Version }, "1.1.0"},
		{"both ways", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, "shared")
		}, at("/m"), "bind /h rbind,rshared,rw"},
		{"options", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", MountOptions: []string{"noexec", "nosuid"}}, "private")
		}, at("/m"), "bind /h rbind,rprivate,rw,noexec,nosuid"},
		{"volume of the image", func(in *Input) { in.Volumes = []Volume{{"/v", "/r/v"}} }, at("/v"), "bind /r/v rbind,rprivate,rw"},
		{"volume of the image that a mount covers", func(in *Input) {
			in.Volumes = []Volume{{"/v", "/r/v"}}
			mount(in, &runtimeapi.Mount{ContainerPath: "/v", HostPath: "/mine"}, "private")
		}, at("/v"), "bind /mine rbind,rprivate,rw"},
		{"recursive", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Readonly: true, RecursiveReadOnly: true}, "private")
		}, at("/m"), "bind /h rbind,rprivate,rro"},
		{"image", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/images/x", Image: &runtimeapi.ImageSpec{Image: "x"}}, "private")
		}, at("/m"), "bind /images/x rbind,rprivate,ro"},

		{"no profile", nil, seccomp, false},
		{"the usual profile", func(in *Input) { in.sc().Seccomp = &runtimeapi.SecurityProfile{} }, seccomp, true},
		{"unconfined", func(in *Input) {
			in.sc().Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
		}, seccomp, false},
		{"privileged is not confined", func(in *Input) { in.sc().Privileged, in.sc().Seccomp = true, &runtimeapi.SecurityProfile{} }, seccomp, false},
		{"a profile of one's own", func(in *Input) {
			in.sc().Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}
			in.SeccompProfile = []byte(`{"defaultAction":"SCMP_ACT_LOG"}`)
		}, func(s *specs.Spec) any { return s.Linux.Seccomp.DefaultAction }, specs.ActLog},

		{"AppArmor", nil, apparmor, "usual"},
		{"AppArmor by name", func(in *Input) {
			in.sc().Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
		}, apparmor, "mine"},
		{"AppArmor in older words", func(in *Input) { older(in, "localhost/mine") }, apparmor, "mine"},
		{"no AppArmor", func(in *Input) { older(in, "unconfined") }, apparmor, ""},
		{"AppArmor of the privileged", func(in *Input) { in.sc().Privileged = true }, apparmor, ""},
		{"a kernel without AppArmor", func(in *Input) { in.Machine.AppArmor = false }, apparmor, ""},

		{"masked", nil, func(s *specs.Spec) any { return len(s.Linux.MaskedPaths) }, len(maskedPaths)},
		{"masked by the CRI", func(in *Input) { in.sc().MaskedPaths = []string{"/proc/x"} }, func(s *specs.Spec) any { return s.Linux.MaskedPaths }, []string{"/proc/x"}},
		{"unmasked", usernsOf(&runtimeapi.UserNamespace{Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}, Gids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}}), func(s *specs.Spec) any { return len(s.Linux.MaskedPaths) + len(s.Linux.ReadonlyPaths) }, 0},
		{"users of its own, and no security context", func(in *Input) {
			usernsOf(&runtimeapi.UserNamespace{Uids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}, Gids: []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}})(in)
			in.Container.Linux.SecurityContext, in.Namespaces.PID = nil, "/proc/7/ns/pid"
		}, func(s *specs.Spec) any { return len(s.Linux.MaskedPaths) }, len(maskedPaths)},
		{"nothing masked", func(in *Input) { in.sc().Privileged = true }, func(s *specs.Spec) any { return s.Linux.MaskedPaths }, []string(nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input()
			if tc.with != nil {
				tc.with(in)
			}
			before := proto.Clone(in.Container)
			s, err := Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.what(s); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if !proto.Equal(before, in.Container) {
				t.Error("the input has changed")
			}
		})
	}
}

func TestMountsAreSortedByDepth(t *testing.T) {
	in := input()
	for _, p := range []string{"/a/b/c", "/a", "/a/b"} {
		mount(in, &runtimeapi.Mount{ContainerPath: p, HostPath: "/h"}, "private")
	}
	s, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(s.Mounts, func(a, b specs.Mount) int { return depth(a.Destination) - depth(b.Destination) }) {
		t.Errorf("mounts %v", s.Mounts)
	}
}

func TestRefused(t *testing.T) {
	ids := func(container, host, length uint32) *runtimeapi.UserNamespace {
		m := []*runtimeapi.IDMapping{{ContainerId: container, HostId: host, Length: length}}
		return &runtimeapi.UserNamespace{Uids: m, Gids: m}
	}
	for _, tc := range []struct {
		name string
		with func(*Input)
		code codes.Code
		text string
	}{
		{"no command", func(in *Input) { in.Container.Command = nil }, codes.InvalidArgument, "which program"},
		{"capability", func(in *Input) { in.sc().Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"FLY"}} }, codes.InvalidArgument, `add_capabilities "FLY"`},
		{"score", func(in *Input) { in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{OomScoreAdj: 1001} }, codes.InvalidArgument, "oom_score_adj 1001"},
		{"pages", func(in *Input) {
			in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "3MB"}}}
		}, codes.InvalidArgument, `"3MB"`},
		{"pages without a controller", func(in *Input) {
			in.Machine.HugePagesLimited, in.Container.Linux.Resources = false, &runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1}}}
		}, codes.FailedPrecondition, "hugetlb"},
		{"unified on v1", func(in *Input) {
			in.Container.Linux.Resources = &runtimeapi.LinuxContainerResources{Unified: map[string]string{"memory.high": "1"}}
		}, codes.FailedPrecondition, "v1"},
		{"unified with a path", func(in *Input) {
			in.Machine.CgroupV2, in.Container.Linux.Resources = true, &runtimeapi.LinuxContainerResources{Unified: map[string]string{"../memory.high": "1"}}
		}, codes.InvalidArgument, "../memory.high"},
		{"slice without systemd", func(in *Input) { in.Sandbox.Linux.CgroupParent = "a.slice" }, codes.InvalidArgument, "cgroup_parent"},
		{"parent that climbs", func(in *Input) { in.Sandbox.Linux.CgroupParent = "/a/../.." }, codes.InvalidArgument, "cgroup_parent"},
		{"path with systemd", func(in *Input) { in.Machine.Systemd = true }, codes.InvalidArgument, "slice"},
		{"device", func(in *Input) {
			in.Container.Devices, in.Devices = []*runtimeapi.Device{{ContainerPath: "/d", HostPath: "/dev/none", Permissions: "r"}}, [][]Device{nil}
		}, codes.FailedPrecondition, `"/dev/none"`},
		{"device access", func(in *Input) {
			in.Container.Devices, in.Devices = []*runtimeapi.Device{{ContainerPath: "/d", Permissions: "x"}}, [][]Device{{{}}}
		}, codes.InvalidArgument, "permissions"},
		{"mount option", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", MountOptions: []string{"noexec", "suid"}}, "")
		}, codes.InvalidArgument, `mounts[0].mount_options[1] "suid"`},
		{"NUL in a variable", func(in *Input) {
			in.Container.Envs = []*runtimeapi.KeyValue{{Key: "A"}, {Key: "B", Value: []byte("a\x00b")}}
		}, codes.InvalidArgument, `envs[1] "B"`},
		{"relative source", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "h"}, "")
			in.Sources[0].Path = ""
		}, codes.InvalidArgument, `host_path "h"`},
		{"root", func(in *Input) { mount(in, &runtimeapi.Mount{ContainerPath: "/x/..", HostPath: "/h"}, "") }, codes.InvalidArgument, "container_path"},
		{"private source", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, "slave")
		}, codes.FailedPrecondition, "shared"},
		{"recursive and writable", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", RecursiveReadOnly: true}, "")
		}, codes.InvalidArgument, "readonly"},
		{"recursive and propagated", func(in *Input) {
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Readonly: true, RecursiveReadOnly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}, "shared")
		}, codes.InvalidArgument, "PROPAGATION_PRIVATE"},
		{"recursive on an old kernel", func(in *Input) {
			in.Machine.RecursiveReadOnly = false
			mount(in, &runtimeapi.Mount{ContainerPath: "/m", HostPath: "/h", Readonly: true, RecursiveReadOnly: true}, "")
		}, codes.FailedPrecondition, "5.12"},
		{"target that is gone", func(in *Input) { in.sc().NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET }, codes.FailedPrecondition, "pid"},
		{"container's own IPC", func(in *Input) { in.sc().NamespaceOptions.Ipc = runtimeapi.NamespaceMode_CONTAINER }, codes.InvalidArgument, "ipc"},
		{"users of a container", usernsOf(&runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_CONTAINER}), codes.InvalidArgument, "mode"},
		{"no mapping", usernsOf(&runtimeapi.UserNamespace{}), codes.InvalidArgument, "uids"},
		{"mapping without root", usernsOf(ids(1, 65536, 65536)), codes.InvalidArgument, "container_id"},
		{"short mapping", usernsOf(ids(0, 65536, 1000)), codes.InvalidArgument, "length"},
		{"mapping over the end", usernsOf(ids(0, 1<<32-1000, 65536)), codes.InvalidArgument, "host_id"},
		{"users without mapped mounts", func(in *Input) { usernsOf(ids(0, 65536, 65536))(in); in.Handler.IDMap = false }, codes.FailedPrecondition, "ID-mapped"},
		{"seccomp profile", func(in *Input) {
			in.sc().Seccomp, in.SeccompProfile = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}, []byte("{")
		}, codes.FailedPrecondition, "does not parse"},
		{"seccomp path", func(in *Input) {
			in.sc().Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "p"}
		}, codes.InvalidArgument, "absolute"},
		{"AppArmor profile", func(in *Input) { older(in, "localhost/other") }, codes.FailedPrecondition, "not loaded"},
		{"AppArmor without the kernel's", func(in *Input) { in.Machine.AppArmor = false; older(in, "localhost/mine") }, codes.FailedPrecondition, "no AppArmor"},
		{"masked path", func(in *Input) { in.sc().MaskedPaths = []string{"proc"} }, codes.InvalidArgument, "masked_paths"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input()
			tc.with(in)
			_, err := Compile(in)
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v, want %v with %q", err, tc.code, tc.text)
			}
		})
	}
}
