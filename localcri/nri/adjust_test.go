package nri

import (
	"reflect"
	"testing"

	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
)

func TestAdjust(t *testing.T) {
	for name, c := range map[string]struct {
		ask  func(*api.ContainerAdjustment)
		want func(*specs.Spec)
	}{
		"nothing": {func(*api.ContainerAdjustment) {}, func(*specs.Spec) {}},
		"annotations": {func(a *api.ContainerAdjustment) {
			a.RemoveAnnotation("old")
			a.AddAnnotation("new", "1")
		}, func(s *specs.Spec) { s.Annotations = map[string]string{"new": "1"} }},
		"a variable that is removed and set": {func(a *api.ContainerAdjustment) {
			a.RemoveEnv("A")
			a.AddEnv("A", "2")
			a.AddEnv("C", "3")
		}, func(s *specs.Spec) { s.Process.Env = []string{"A=2", "B=2", "C=3"} }},
		"arguments": {func(a *api.ContainerAdjustment) { a.SetArgs([]string{"/x", "y"}) }, func(s *specs.Spec) { s.Process.Args = []string{"/x", "y"} }},
		"mounts": {func(a *api.ContainerAdjustment) {
			a.RemoveMount("/data/x")
			a.AddMount(&api.Mount{Destination: "/data", Type: "bind", Source: "/d", Options: []string{"rbind", "rslave"}})
			a.AddMount(&api.Mount{Destination: "/proc", Type: "proc", Source: "other"})
		}, func(s *specs.Spec) {
			s.Mounts = []specs.Mount{{Destination: "/data", Type: "bind", Source: "/d", Options: []string{"rbind", "rslave"}}, {Destination: "/proc", Type: "proc", Source: "other"}}
			s.Linux.RootfsPropagation = "rslave"
		}},
		"hooks": {func(a *api.ContainerAdjustment) {
			a.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{{Path: "/h", Args: []string{"h"}}}})
		}, func(s *specs.Spec) {
			s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/h", Args: []string{"h"}}}}
		}},
		"resources": {func(a *api.ContainerAdjustment) {
			a.SetLinuxMemoryLimit(1 << 20)
			a.SetLinuxCPUShares(7)
			a.SetLinuxCPUSetCPUs("0-1")
			a.SetLinuxPidLimits(9)
			a.AddLinuxUnified("memory.high", "5")
		}, func(s *specs.Spec) {
			s.Linux.Resources = &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20)), Swap: new(int64(1 << 20))}, CPU: &specs.LinuxCPU{Shares: new(uint64(7)), Cpus: "0-1"},
				Pids: &specs.LinuxPids{Limit: new(int64(9))}, Unified: map[string]string{"memory.high": "5"},
			}
		}},
		"namespaces": {func(a *api.ContainerAdjustment) {
			a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "network", Path: "/run/netns/x"})
			a.RemoveNamespace(&api.LinuxNamespace{Type: "ipc"})
		}, func(s *specs.Spec) {
			s.Linux.Namespaces = []specs.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/x"}}
		}},
		"processes": {func(a *api.ContainerAdjustment) {
			a.SetLinuxOomScoreAdj(new(500))
			a.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_IDLE})
			a.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_BATCH, Nice: 3})
			a.SetLinuxSysctl("net.core.somaxconn", "9")
			a.SetLinuxMemoryPolicy(api.MpolMode_MPOL_BIND, "0")
			a.SetLinuxSeccompPolicy(&api.LinuxSeccomp{DefaultAction: "SCMP_ACT_ALLOW"})
			a.SetLinuxRDTClosID("fast")
			a.SetLinuxCgroupsPath("/elsewhere")
		}, func(s *specs.Spec) {
			s.Process.OOMScoreAdj = new(500)
			s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_IDLE}
			s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 3}
			s.Linux.Sysctl = map[string]string{"net.core.somaxconn": "9"}
			s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0"}
			s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{}}
			s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "fast"}
			s.Linux.CgroupsPath = "/elsewhere" // the runtime refuses it
		}},
		"a network device": {func(a *api.ContainerAdjustment) { a.AddLinuxNetDevice("eth7", &api.LinuxNetDevice{Name: "net0"}) }, func(s *specs.Spec) {
			s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth7": {Name: "net0"}}
		}},
	} {
		a := &api.ContainerAdjustment{}
		c.ask(a)
		got, want := spec(), spec()
		if err := adjust(got, a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.want(want)
		for _, s := range []*specs.Spec{got, want} { // nothing is the same as an empty one
			if len(s.Annotations) == 0 {
				s.Annotations = nil
			}
			if r := s.Linux.Resources; r != nil && r.Memory == nil {
				r.Memory = &specs.LinuxMemory{}
			}
			if r := s.Linux.Resources; r == nil || reflect.DeepEqual(*r, specs.LinuxResources{Memory: &specs.LinuxMemory{}}) {
				s.Linux.Resources = nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\n%+v\n%+v\nwant\n%+v\n%+v\n%+v", name, got, got.Process, got.Linux, want, want.Process, want.Linux)
		}
	}
}

func spec() *specs.Spec {
	return &specs.Spec{
		Annotations: map[string]string{"old": "x"}, Process: &specs.Process{Args: []string{"/bin/sh"}, Env: []string{"A=1", "B=2"}},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc"}, {Destination: "/data/x", Type: "bind", Source: "/x"}},
		Linux:  &specs.Linux{CgroupsPath: "/p/c", Namespaces: []specs.LinuxNamespace{{Type: "pid"}, {Type: "ipc"}}},
	}
}

// FuzzAdjust gives the runtime answers of a hostile plugin.
func FuzzAdjust(f *testing.F) {
	a := &api.ContainerAdjustment{}
	a.AddDevice(&api.LinuxDevice{Path: "/dev/x", Type: "c"})
	a.AddEnv("", "x")
	a.AddMount(&api.Mount{Destination: "-/"})
	b, err := proto.Marshal(a)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		a, u := &api.ContainerAdjustment{}, &api.ContainerUpdate{}
		if proto.Unmarshal(b, a) == nil {
			_ = adjust(spec(), a)
		}
		if proto.Unmarshal(b, u) == nil {
			_, _ = updateOf(u)
		}
	})
}
