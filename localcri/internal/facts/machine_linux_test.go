package facts

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// of makes facts of a machine of which these files are told.
func of(t *testing.T, cfg Config, files map[string]string) *Facts {
	t.Helper()
	dir := t.TempDir()
	cfg.Proc, cfg.Sys, cfg.Dev = filepath.Join(dir, "proc"), filepath.Join(dir, "sys"), filepath.Join(dir, "dev")
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const cg = "sys/fs/cgroup/"

func TestMachine(t *testing.T) {
	all := func(m ocispec.Machine) ocispec.Machine { m.RecursiveReadOnly = hasMountSetattr(); return m }
	caps := func(n int) []string {
		var out []string
		for _, c := range capabilityNames[:n] {
			out = append(out, "CAP_"+c)
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		cfg     Config
		files   map[string]string
		want    ocispec.Machine
		seccomp bool
	}{
		{"nothing can be read", Config{}, nil, ocispec.Machine{Capabilities: caps(41)}, false},
		{"v1", Config{}, map[string]string{
			cg + "memory/memory.memsw.limit_in_bytes": "1", cg + "hugetlb/tasks": "", cg + "unified/cgroup.controllers": "",
			"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0", "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0",
			"sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "0", "sys/kernel/mm/hugepages/junk/x": "",
			"proc/sys/kernel/cap_last_cap": "37\n", "proc/self/status": "Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n",
			"proc/sys/kernel/seccomp/actions_avail": "kill",
		}, ocispec.Machine{
			Swap: true, HugePages: []string{"64KB", "2MB", "1GB"}, HugePagesLimited: true, Capabilities: caps(38), LeastOOMScoreAdj: -1000,
		}, true},
		{"v1 without swap", Config{}, map[string]string{cg + "memory/tasks": ""}, ocispec.Machine{Capabilities: caps(41)}, false},
		{"v2", Config{Systemd: true}, map[string]string{
			cg + "cgroup.controllers": "cpu memory hugetlb pids\n", cg + "system.slice/agent.service/memory.swap.max": "max",
			"proc/self/cgroup": "0::/system.slice/agent.service\n", "proc/self/oom_score_adj": "-500\n",
			"proc/self/status": "CapEff:\t0000000000000001\nCapBnd:\t0000000000000003\n",
		}, ocispec.Machine{
			CgroupV2: true, Systemd: true, Swap: true, HugePagesLimited: true, Capabilities: caps(2), LeastOOMScoreAdj: -500,
		}, false},
		{"v2 at the root", Config{}, map[string]string{
			cg + "cgroup.controllers": "cpu memory", cg + "a.slice/memory.swap.max": "max", "proc/self/cgroup": "0::/\n",
		}, ocispec.Machine{CgroupV2: true, Swap: true, Capabilities: caps(41)}, false},
		{"v2 without swap", Config{}, map[string]string{
			cg + "cgroup.controllers": "cpu memory", cg + "a.slice/memory.max": "max", "proc/self/cgroup": "0::/a.slice\n",
		}, ocispec.Machine{CgroupV2: true, Capabilities: caps(41)}, false},
		{"AppArmor", Config{AppArmorDefault: "nodewright"}, map[string]string{
			"sys/module/apparmor/parameters/enabled":   "Y\n",
			"sys/kernel/security/apparmor/profiles":    "nodewright (enforce)\n/usr/bin/man (x) (complain)\nbroken\n",
			"sys/kernel/mm/hugepages/hugepages-0kB/nr": "", "sys/kernel/mm/hugepages/hugepages-9999999999999999999kB/nr": "",
		}, ocispec.Machine{
			Capabilities: caps(41), AppArmor: true, AppArmorProfiles: []string{"nodewright", "/usr/bin/man (x)"}, AppArmorDefault: "nodewright",
		}, false},
		{"AppArmor without the profile", Config{AppArmorDefault: "nodewright"}, map[string]string{"sys/module/apparmor/parameters/enabled": "Y\n"},
			ocispec.Machine{Capabilities: caps(41), AppArmor: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := of(t, tt.cfg, tt.files).Machine()
			if (got.Seccomp != nil) != tt.seccomp {
				t.Errorf("seccomp: %v; want %v", got.Seccomp != nil, tt.seccomp)
			}
			got.Seccomp = nil
			want := all(tt.want)
			if got.CgroupV2 != want.CgroupV2 || got.Systemd != want.Systemd || got.Swap != want.Swap || got.HugePagesLimited != want.HugePagesLimited ||
				!slices.Equal(got.HugePages, want.HugePages) || !slices.Equal(got.Capabilities, want.Capabilities) || got.AppArmor != want.AppArmor ||
				!slices.Equal(got.AppArmorProfiles, want.AppArmorProfiles) || got.AppArmorDefault != want.AppArmorDefault ||
				got.LeastOOMScoreAdj != want.LeastOOMScoreAdj || got.RecursiveReadOnly != want.RecursiveReadOnly {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestSELinux(t *testing.T) {
	for content, want := range map[string]string{"": "", "1": "enforcing", "0": "permissive"} {
		if got := of(t, Config{}, map[string]string{"sys/fs/selinux/enforce": content}).SELinux(); got != want {
			t.Errorf("SELinux of %q = %q; want %q", content, got, want)
		}
	}
}

func TestDefaultSeccompProfileOfThisMachine(t *testing.T) {
	f, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := f.Machine()
	if m.Seccomp == nil {
		t.Skip("the kernel has no seccomp")
	}
	p, err := m.Seccomp(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}})
	if err != nil || p.DefaultAction != specs.ActErrno || len(p.Syscalls) == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if len(m.Capabilities) == 0 {
		t.Errorf("no capabilities: %+v", m)
	}
}

// The machine's lists are the caller's.
func TestMachineIsTheCallers(t *testing.T) {
	f := of(t, Config{}, nil)
	f.Machine().Capabilities[0] = "x"
	if got := f.Machine().Capabilities[0]; got != "CAP_CHOWN" {
		t.Errorf("%s", got)
	}
}

func TestNewNamesEveryBadField(t *testing.T) {
	if _, err := New(Config{Proc: "x", Sys: "y", Dev: "z"}); err == nil || len(err.Error()) < 100 {
		t.Errorf("New: %v", err)
	}
}
