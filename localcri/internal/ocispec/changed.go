package ocispec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxChanged limits the bytes of a configuration that somebody outside has changed. A recovery
// reads twice as much.
const maxChanged = 8 << 20

// CheckChanged rejects a configuration that somebody outside has made of a compiled one, if the
// runtime would not find or end the container any more, or if no OCI runtime could use it.
func CheckChanged(compiled, s *specs.Spec) error {
	if s.Process == nil || s.Linux == nil || s.Root == nil {
		return invalid("spec", "", "must have process, linux and root")
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	switch {
	case len(b) > maxChanged:
		return invalid("spec", fmt.Sprintf("%d bytes", len(b)), fmt.Sprintf("must have at most %d", maxChanged))
	case bytes.Contains(bytes.ReplaceAll(b, []byte(`\\`), nil), []byte(`\u0000`)): // not a backslash and the text u0000
		return invalid("spec", "", "must not contain NUL")
	case s.Linux.CgroupsPath != compiled.Linux.CgroupsPath:
		return invalid("linux.cgroups_path", s.Linux.CgroupsPath, "must stay "+compiled.Linux.CgroupsPath)
	case !reflect.DeepEqual(fixed(compiled), fixed(s)):
		return invalid("spec", "", "a field that must not change has changed")
	}
	for _, check := range []func(compiled, s *specs.Spec) error{checkNamespaces, checkMounts, checkProcess, checkHooks, checkDevices} {
		if err := check(compiled, s); err != nil {
			return err
		}
	}
	return nil
}

// fixed returns the fields of a configuration that must not change.
func fixed(s *specs.Spec) any {
	out, p, l := *s, *s.Process, *s.Linux
	out.Version, out.Annotations, out.Mounts, out.Hooks, out.Process, out.Linux = "", nil, nil, nil, nil, nil
	p.Env, p.Args, p.Rlimits, p.OOMScoreAdj, p.IOPriority, p.Scheduler, p.User.AdditionalGids = nil, nil, nil, nil, nil, nil, nil
	l.Devices, l.Resources, l.Seccomp, l.Namespaces, l.Sysctl, l.NetDevices, l.IntelRdt, l.MemoryPolicy, l.RootfsPropagation = nil, nil, nil, nil, nil, nil, nil, nil, ""
	b, err := json.Marshal([]any{out, p, l}) // as JSON: an empty list is none
	if err != nil {
		return err
	}
	return b
}

// checkNamespaces keeps the namespaces on which the runtime relies: the kernel ends all processes
// of a PID namespace with the first one, and mounts are made in the mount and user namespaces.
func checkNamespaces(compiled, s *specs.Spec) error {
	const field = "linux.namespaces"
	kept := []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace, specs.UserNamespace}
	may := append([]specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace, specs.TimeNamespace}, kept...)
	seen := map[specs.LinuxNamespaceType]bool{}
	for _, n := range s.Linux.Namespaces {
		switch {
		case !slices.Contains(may, n.Type):
			return invalid(field, string(n.Type), "must be a type of namespaces")
		case seen[n.Type]:
			return invalid(field, string(n.Type), "must be there once")
		case n.Path != "" && !path.IsAbs(n.Path):
			return invalid(field+"."+string(n.Type), n.Path, "must be an absolute path")
		}
		seen[n.Type] = true
	}
	of := func(s *specs.Spec, t specs.LinuxNamespaceType) *specs.LinuxNamespace {
		if i := slices.IndexFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == t }); i >= 0 {
			return &s.Linux.Namespaces[i]
		}
		return nil
	}
	for _, t := range kept {
		if !reflect.DeepEqual(of(compiled, t), of(s, t)) {
			return invalid(field, string(t), "must not change")
		}
	}
	return nil
}

func checkMounts(_, s *specs.Spec) error {
	for _, m := range s.Mounts {
		if !path.IsAbs(m.Destination) || path.Clean(m.Destination) == "/" {
			return invalid("mounts.destination", m.Destination, "must be absolute, and not the root")
		}
	}
	return nil
}

func checkProcess(_, s *specs.Spec) error {
	p := s.Process
	if len(p.Args) == 0 || p.Args[0] == "" {
		return invalid("args", strings.Join(p.Args, " "), "must begin with a program")
	}
	for _, e := range p.Env {
		if strings.IndexByte(e, '=') < 1 {
			return invalid("env", e, "must be NAME=VALUE")
		}
	}
	seen := map[string]bool{}
	for _, l := range p.Rlimits {
		switch {
		case !strings.HasPrefix(l.Type, "RLIMIT_"):
			return invalid("rlimits", l.Type, "must begin with RLIMIT_")
		case seen[l.Type]:
			return invalid("rlimits", l.Type, "must be there once")
		case l.Soft > l.Hard:
			return invalid("rlimits."+l.Type, fmt.Sprintf("soft %d, hard %d", l.Soft, l.Hard), "soft must be at most hard")
		}
		seen[l.Type] = true
	}
	if a := p.OOMScoreAdj; a != nil && (*a < -1000 || *a > 1000) {
		return invalid("linux.oom_score_adj", *a, "must be from -1000 to 1000")
	}
	return nil
}

func checkHooks(_, s *specs.Spec) error {
	if s.Hooks == nil {
		return nil
	}
	for _, h := range slices.Concat(s.Hooks.Prestart, s.Hooks.CreateRuntime, s.Hooks.CreateContainer, s.Hooks.StartContainer, s.Hooks.Poststart, s.Hooks.Poststop) { //nolint:staticcheck // plugins may use prestart
		if !path.IsAbs(h.Path) {
			return invalid("hooks.path", h.Path, "must be absolute")
		}
		if h.Timeout != nil && *h.Timeout <= 0 {
			return invalid("hooks.timeout", *h.Timeout, "must be positive")
		}
	}
	return nil
}

func checkDevices(_, s *specs.Spec) error {
	for _, d := range s.Linux.Devices {
		switch {
		case !path.IsAbs(d.Path) || path.Clean(d.Path) == "/":
			return invalid("linux.devices.path", d.Path, "must be absolute, and not the root")
		case !slices.Contains([]string{"b", "c", "u", "p"}, d.Type):
			return invalid("linux.devices.type", d.Type, "must be b, c, u or p")
		}
	}
	return nil
}

// ChangedResources returns the resources of to that differ from those of from and that the CRI
// has.
func ChangedResources(from, to *specs.LinuxResources) (*runtimeapi.LinuxContainerResources, error) {
	out := &runtimeapi.LinuxContainerResources{}
	if from == nil {
		from = &specs.LinuxResources{}
	}
	if to == nil {
		to = &specs.LinuxResources{}
	}
	var err error
	number := func(field string, to *int64, old, v *uint64) {
		switch {
		case v == nil || old != nil && *old == *v:
		case *v > math.MaxInt64:
			err = invalid("linux.resources."+field, *v, "is too large")
		default:
			*to = int64(*v)
		}
	}
	signed := func(to *int64, old, v *int64) {
		if v != nil && (old == nil || *old != *v) {
			*to = *v
		}
	}
	var oldCPU, cpu specs.LinuxCPU
	if from.CPU != nil {
		oldCPU = *from.CPU
	}
	if to.CPU != nil {
		cpu = *to.CPU
	}
	number("cpu_shares", &out.CpuShares, oldCPU.Shares, cpu.Shares)
	number("cpu_period", &out.CpuPeriod, oldCPU.Period, cpu.Period)
	signed(&out.CpuQuota, oldCPU.Quota, cpu.Quota)
	if cpu.Cpus != oldCPU.Cpus {
		out.CpusetCpus = cpu.Cpus
	}
	if cpu.Mems != oldCPU.Mems {
		out.CpusetMems = cpu.Mems
	}
	var oldMemory, memory specs.LinuxMemory
	if from.Memory != nil {
		oldMemory = *from.Memory
	}
	if to.Memory != nil {
		memory = *to.Memory
	}
	signed(&out.MemoryLimitInBytes, oldMemory.Limit, memory.Limit)
	signed(&out.MemorySwapLimitInBytes, oldMemory.Swap, memory.Swap)
	for _, l := range to.HugepageLimits {
		if !slices.Contains(from.HugepageLimits, l) {
			out.HugepageLimits = append(out.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: l.Pagesize, Limit: l.Limit})
		}
	}
	for k, v := range to.Unified {
		if old, ok := from.Unified[k]; ok && old == v {
			continue
		}
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[k] = v
	}
	return out, err
}

// KeepRest returns r with the resources of old that the CRI does not have.
func KeepRest(r, old *specs.LinuxResources) *specs.LinuxResources {
	if old != nil {
		r.Devices, r.Pids, r.BlockIO, r.Network, r.Rdma = old.Devices, old.Pids, old.BlockIO, old.Network, old.Rdma
	}
	return r
}
