package ocispec_test

import (
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

func compiledSpec() *specs.Spec {
	return &specs.Spec{
		Version: "1.0.2", Root: &specs.Root{Path: "/r"}, Process: &specs.Process{Args: []string{"/a"}, Cwd: "/"},
		Linux: &specs.Linux{CgroupsPath: "/p/c", Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/n"}}},
	}
}

func TestChangesFromOutside(t *testing.T) {
	for word, change := range map[string]func(*specs.Spec){
		"": func(s *specs.Spec) { // all that may change
			s.Annotations = map[string]string{"a": "b"}
			s.Process.Env, s.Process.Args, s.Process.OOMScoreAdj = []string{"A=", `B=\u0000`}, []string{"/b"}, new(-1000)
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}}
			s.Mounts = []specs.Mount{{Destination: "/x"}}
			s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/h"}}}
			s.Linux.Namespaces[1].Path = "/other"
			s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/x", Type: "c"}}
			s.Linux.Resources = &specs.LinuxResources{}
			s.Linux.Sysctl = map[string]string{"a": "b"}
		},
		"process, linux and root":      func(s *specs.Spec) { s.Process = nil },
		"linux.cgroups_path":           func(s *specs.Spec) { s.Linux.CgroupsPath = "/" },
		"must not change has changed":  func(s *specs.Spec) { s.Root.Path = "/" },
		"a field that must not change": func(s *specs.Spec) { s.Process.Terminal = true },
		"NUL":                          func(s *specs.Spec) { s.Process.Env = []string{"A=\x00"} },
		"must have at most 8388608":    func(s *specs.Spec) { s.Process.Env = []string{"A=" + strings.Repeat("x", 8<<20)} },
		`linux.namespaces "pid"`:       func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] },
		`linux.namespaces "user"`: func(s *specs.Spec) {
			s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		},
		"must be a type of namespaces": func(s *specs.Spec) { s.Linux.Namespaces[1].Type = "x" },
		`linux.namespaces "network"`:   func(s *specs.Spec) { s.Linux.Namespaces = append(s.Linux.Namespaces, s.Linux.Namespaces[1]) },
		"linux.namespaces.network":     func(s *specs.Spec) { s.Linux.Namespaces[1].Path = "n" },
		`mounts.destination "/."`:      func(s *specs.Spec) { s.Mounts = []specs.Mount{{Destination: "/."}} },
		`mounts.destination "x"`:       func(s *specs.Spec) { s.Mounts = []specs.Mount{{Destination: "x"}} },
		"args":                         func(s *specs.Spec) { s.Process.Args = nil },
		"env":                          func(s *specs.Spec) { s.Process.Env = []string{"=x"} },
		`rlimits "NOFILE"`:             func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "NOFILE"}} },
		`rlimits "RLIMIT_CORE"`: func(s *specs.Spec) {
			s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_CORE"}}
		},
		"soft must be at most hard": func(s *specs.Spec) { s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1}} },
		"linux.oom_score_adj 1001":  func(s *specs.Spec) { s.Process.OOMScoreAdj = new(1001) },
		"hooks.path":                func(s *specs.Spec) { s.Hooks = &specs.Hooks{Prestart: []specs.Hook{{Path: "h"}}} }, //nolint:staticcheck // plugins may use it
		"hooks.timeout":             func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/h", Timeout: new(0)}}} },
		`linux.devices.path "/"`:    func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/", Type: "c"}} },
		`linux.devices.type "x"`:    func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/x", Type: "x"}} },
	} {
		s := compiledSpec()
		change(s)
		err := ocispec.CheckChanged(compiledSpec(), s)
		if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("%v; want %q in it", err, word)
		}
	}
}

func TestChangedResources(t *testing.T) {
	old := &specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(1)), Cpus: "0"}, Unified: map[string]string{"a.b": "1"}}
	changed := &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Shares: new(uint64(1)), Quota: new(int64(5)), Cpus: "1"}, Memory: &specs.LinuxMemory{Limit: new(int64(7))},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 3}}, Unified: map[string]string{"a.b": "1", "c.d": "2"},
	}
	got, err := ocispec.ChangedResources(old, changed)
	want := &runtimeapi.LinuxContainerResources{
		CpuQuota: 5, CpusetCpus: "1", MemoryLimitInBytes: 7, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 3}}, Unified: map[string]string{"c.d": "2"},
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := ocispec.ChangedResources(nil, &specs.LinuxResources{CPU: &specs.LinuxCPU{Period: new(uint64(1 << 63))}}); err == nil {
		t.Error("a period of 1<<63 is accepted")
	}
}
