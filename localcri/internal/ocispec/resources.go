package ocispec

import (
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *compiler) resources() error {
	asked := c.in.linux().GetResources()
	if asked == nil {
		return nil
	}
	r, err := Resources(asked, c.in.Machine)
	if err != nil {
		return err
	}
	c.spec.Linux.Resources = r
	return nil
}

// Resources converts the CRI's resources to those of the OCI specification, without devices. A
// value of 0 or "" is left out of the result, so that an update does not change it.
func Resources(requested *runtimeapi.LinuxContainerResources, m Machine) (*specs.LinuxResources, error) {
	r := &specs.LinuxResources{}
	cpu := &specs.LinuxCPU{Cpus: requested.GetCpusetCpus(), Mems: requested.GetCpusetMems()}
	if v := requested.GetCpuShares(); v < 0 {
		return nil, invalid("linux.resources.cpu_shares", v, "must not be negative")
	} else if v > 0 {
		cpu.Shares = new(uint64(v))
	}
	if v := requested.GetCpuPeriod(); v < 0 {
		return nil, invalid("linux.resources.cpu_period", v, "must not be negative")
	} else if v > 0 {
		cpu.Period = new(uint64(v))
	}
	if v := requested.GetCpuQuota(); v != 0 { // -1 means no limit
		cpu.Quota = new(v)
	}
	if *cpu != (specs.LinuxCPU{}) {
		r.CPU = cpu
	}
	memory := &specs.LinuxMemory{}
	if v := requested.GetMemoryLimitInBytes(); v != 0 {
		memory.Limit = new(v)
	}
	switch swap := requested.GetMemorySwapLimitInBytes(); {
	case !m.Swap:
	case swap != 0:
		memory.Swap = new(swap)
	case requested.GetMemoryLimitInBytes() != 0: // memory and swap together, so no swap
		memory.Swap = new(requested.GetMemoryLimitInBytes())
	}
	if *memory != (specs.LinuxMemory{}) {
		r.Memory = memory
	}
	for _, l := range requested.GetHugepageLimits() {
		switch {
		case !slices.Contains(m.HugePages, l.GetPageSize()):
			return nil, invalid("linux.resources.hugepage_limits", l.GetPageSize(), "must be a size that the kernel has: "+strings.Join(m.HugePages, ", "))
		case !m.HugePagesLimited && l.GetLimit() == 0: // the cgroup has no such limit
		case !m.HugePagesLimited:
			return nil, unable("linux.resources.hugepage_limits", l.GetPageSize(), "the machine has no hugetlb cgroup controller")
		default:
			r.HugepageLimits = append(r.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: l.GetPageSize(), Limit: l.GetLimit()})
		}
	}
	if u := requested.GetUnified(); len(u) > 0 {
		if !m.CgroupV2 {
			return nil, unable("linux.resources.unified", slices.Sorted(maps.Keys(u))[0], "the machine has cgroups v1")
		}
		for k := range u {
			if k == "" || strings.ContainsAny(k, "/\x00") || strings.HasPrefix(k, "cgroup.") || !strings.Contains(k, ".") {
				return nil, invalid("linux.resources.unified", k, "must be the name of a controller's file, such as memory.high")
			}
		}
		r.Unified = maps.Clone(u)
	}
	if m.UserNamespace && m.CgroupV2 {
		m.delegated(r)
	}
	return r, nil
}

// delegated removes the values of controllers that were not delegated to this user namespace. The OCI
// runtime would fail with them.
func (m *Machine) delegated(r *specs.LinuxResources) {
	has := func(controller string) bool { return slices.Contains(m.Controllers, controller) }
	if r.CPU != nil && !has("cpuset") {
		r.CPU.Cpus, r.CPU.Mems = "", ""
	}
	if r.CPU != nil && !has("cpu") {
		r.CPU = &specs.LinuxCPU{Cpus: r.CPU.Cpus, Mems: r.CPU.Mems}
	}
	if !has("memory") {
		r.Memory = nil
	}
	maps.DeleteFunc(r.Unified, func(file, _ string) bool {
		controller, _, _ := strings.Cut(file, ".")
		return !has(controller)
	})
}
