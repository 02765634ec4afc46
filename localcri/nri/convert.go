package nri

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/localcri"
)

// maxUpdates limits the updates that a plugin requests in one answer.
const maxUpdates = 1000

// podOf converts a sandbox.
func podOf(p localcri.HookPod) *api.PodSandbox {
	m := p.Config.GetMetadata()
	out := &api.PodSandbox{
		Id: p.ID, Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace(),
		Labels: p.Config.GetLabels(), Annotations: p.Config.GetAnnotations(), RuntimeHandler: p.Handler, Ips: p.IPs,
		Linux: &api.LinuxPodSandbox{CgroupParent: p.Config.GetLinux().GetCgroupParent()},
	}
	overhead, resources := p.Overhead, p.Resources
	if overhead == nil {
		overhead = p.Config.GetLinux().GetOverhead()
	}
	if resources == nil {
		resources = p.Config.GetLinux().GetResources()
	}
	out.Linux.PodOverhead, out.Linux.PodResources = resourcesOf(overhead), resourcesOf(resources)
	if p.Netns != "" {
		out.Linux.Namespaces = []*api.LinuxNamespace{{Type: string(specs.NetworkNamespace), Path: p.Netns}}
	}
	return out
}

// containerOf converts a container. Without its configuration, only what the request for it said is
// known.
func containerOf(c localcri.HookContainer) *api.Container {
	s := c.Status
	out := &api.Container{
		Id: s.GetId(), PodSandboxId: c.PodID, Name: s.GetMetadata().GetName(), State: stateOf(s.GetState()), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		Pid: uint32(max(0, c.PID)), CreatedAt: s.GetCreatedAt(), StartedAt: s.GetStartedAt(), FinishedAt: s.GetFinishedAt(),
		ExitCode: s.GetExitCode(), StatusReason: s.GetReason(), StatusMessage: s.GetMessage(),
		Image: &api.Image{Name: s.GetImage().GetImage(), Digest: s.GetImageRef(), ConfigDigest: s.GetImageId()},
		Linux: &api.LinuxContainer{},
	}
	for _, d := range c.Config.GetCDIDevices() {
		out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: d.GetName()})
	}
	if p := c.Config.GetLinux().GetSecurityContext().GetSeccomp(); p != nil {
		out.Linux.SeccompProfile = &api.SecurityProfile{ProfileType: api.SecurityProfile_ProfileType(p.GetProfileType()), LocalhostRef: p.GetLocalhostRef()}
	}
	spec := c.Spec
	if spec == nil || spec.Process == nil || spec.Linux == nil {
		return out
	}
	out.Annotations = maps.Clone(spec.Annotations)
	out.Args, out.Env = slices.Clone(spec.Process.Args), slices.Clone(spec.Process.Env)
	out.Mounts, out.Hooks = api.FromOCIMounts(spec.Mounts), api.FromOCIHooks(spec.Hooks)
	for _, l := range spec.Process.Rlimits {
		out.Rlimits = append(out.Rlimits, &api.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft})
	}
	u := spec.Process.User
	out.User = &api.User{Uid: u.UID, Gid: u.GID, AdditionalGids: slices.Clone(u.AdditionalGids)}
	l, from := out.Linux, spec.Linux
	l.Namespaces, l.Devices = api.FromOCILinuxNamespaces(from.Namespaces), api.FromOCILinuxDevices(from.Devices)
	l.Resources, l.CgroupsPath = api.FromOCILinuxResources(from.Resources, nil), from.CgroupsPath
	l.OomScoreAdj = api.Int(spec.Process.OOMScoreAdj)
	l.IoPriority, l.Scheduler = api.FromOCILinuxIOPriority(spec.Process.IOPriority), api.FromOCILinuxScheduler(spec.Process.Scheduler)
	if from.Seccomp != nil {
		l.SeccompPolicy = api.FromOCILinuxSeccomp(from.Seccomp)
	}
	l.Sysctl, l.NetDevices = maps.Clone(from.Sysctl), api.FromOCILinuxNetDevices(from.NetDevices)
	if r := from.IntelRdt; r != nil {
		l.Rdt = &api.LinuxRdt{ClosId: api.String(r.ClosID), Schemata: api.RepeatedString(r.Schemata), EnableMonitoring: api.Bool(r.EnableMonitoring)}
	}
	return out
}

func stateOf(s runtimeapi.ContainerState) api.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return api.ContainerState_CONTAINER_CREATED
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return api.ContainerState_CONTAINER_RUNNING
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return api.ContainerState_CONTAINER_STOPPED
	}
	return api.ContainerState_CONTAINER_UNKNOWN
}

// resourcesOf converts resources of the CRI. 0 and "" are not set.
func resourcesOf(r *runtimeapi.LinuxContainerResources) *api.LinuxResources {
	if r == nil {
		return nil
	}
	out := &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: &api.LinuxCPU{Cpus: r.GetCpusetCpus(), Mems: r.GetCpusetMems()}, Unified: maps.Clone(r.GetUnified())}
	if v := r.GetMemoryLimitInBytes(); v != 0 {
		out.Memory.Limit = api.Int64(v)
	}
	if v := r.GetMemorySwapLimitInBytes(); v != 0 {
		out.Memory.Swap = api.Int64(v)
	}
	if v := r.GetCpuShares(); v > 0 {
		out.Cpu.Shares = api.UInt64(uint64(v))
	}
	if v := r.GetCpuQuota(); v != 0 {
		out.Cpu.Quota = api.Int64(v)
	}
	if v := r.GetCpuPeriod(); v > 0 {
		out.Cpu.Period = api.UInt64(uint64(v))
	}
	for _, h := range r.GetHugepageLimits() {
		out.HugepageLimits = append(out.HugepageLimits, &api.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return out
}

// updatesOf converts the updates of one answer.
func updatesOf(list []*api.ContainerUpdate) ([]localcri.HookUpdate, error) {
	if len(list) > maxUpdates {
		return nil, fmt.Errorf("answer has %d updates; want at most %d", len(list), maxUpdates)
	}
	var out []localcri.HookUpdate
	for _, u := range list {
		if u == nil { // the adaptation's, for a container that stays as it is
			continue
		}
		made, err := updateOf(u)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// updateOf converts an update. What an update of the CRI does not have is an error.
func updateOf(u *api.ContainerUpdate) (localcri.HookUpdate, error) {
	out := localcri.HookUpdate{ContainerID: u.GetContainerId(), IgnoreFailure: u.GetIgnoreFailure(), Resources: &runtimeapi.LinuxContainerResources{}}
	r, to := u.GetLinux().GetResources(), out.Resources
	cpu, memory := r.GetCpu(), r.GetMemory()
	for field, is := range map[string]bool{
		"cpu.realtime_runtime": cpu.GetRealtimeRuntime().GetValue() != 0, "cpu.realtime_period": cpu.GetRealtimePeriod().GetValue() != 0,
		"pids": r.GetPids() != nil, "devices": len(r.GetDevices()) > 0, "blockio_class": r.GetBlockioClass().GetValue() != "", "rdt_class": r.GetRdtClass().GetValue() != "",
		"memory": otherMemory(memory),
	} {
		if is {
			return out, unsupported(fmt.Sprintf("update of container %.128q: linux.resources.%s", out.ContainerID, field))
		}
	}
	shares, period := cpu.GetShares().GetValue(), cpu.GetPeriod().GetValue()
	if shares > math.MaxInt64 || period > math.MaxInt64 {
		return out, fmt.Errorf("update of container %.128q: linux.resources.cpu: shares %d, period %d: too large", out.ContainerID, shares, period)
	}
	to.CpuShares, to.CpuPeriod, to.CpuQuota = int64(shares), int64(period), cpu.GetQuota().GetValue()
	to.CpusetCpus, to.CpusetMems = cpu.GetCpus(), cpu.GetMems()
	to.MemoryLimitInBytes, to.MemorySwapLimitInBytes = memory.GetLimit().GetValue(), memory.GetSwap().GetValue()
	for _, h := range r.GetHugepageLimits() {
		to.HugepageLimits = append(to.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	to.Unified = maps.Clone(r.GetUnified())
	return out, nil
}

// otherMemory reports whether m sets anything except the limits of memory and swap.
func otherMemory(m *api.LinuxMemory) bool {
	return m.GetReservation().GetValue() != 0 || m.GetKernel().GetValue() != 0 || m.GetKernelTcp().GetValue() != 0 || m.GetSwappiness().GetValue() != 0 ||
		m.GetDisableOomKiller().GetValue() || m.GetUseHierarchy().GetValue()
}

func unsupported(field string) error {
	return fmt.Errorf("%s: is not supported by this runtime", field)
}
