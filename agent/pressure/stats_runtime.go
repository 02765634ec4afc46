package pressure

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/stats"
)

// runtime adapts a CRI runtime to package node/stats. It adds start times and the kind
// of network from the agent's observations, since the runtime's lists lack these.
type runtime struct{ *Stats }

// Sandboxes implements block.Runtime. Sandboxes without a pod are left out.
func (r runtime) Sandboxes(ctx context.Context) ([]stats.Sandbox, error) {
	list, err := r.cfg.Runtime.ListPodSandbox(ctx, nil)
	out := make([]stats.Sandbox, 0, len(list))
	for _, s := range list {
		uid := types.UID(s.GetLabels()[cri.LabelPodUID])
		if uid == "" {
			continue
		}
		out = append(out, stats.Sandbox{
			ID: s.GetId(), UID: uid, Name: s.GetLabels()[cri.LabelPodName], Namespace: s.GetLabels()[cri.LabelPodNamespace],
			Attempt: s.GetMetadata().GetAttempt(), CreatedAt: time.Unix(0, s.GetCreatedAt()), Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			HostNetwork: r.onHostNetwork(uid, s.GetId()),
		})
	}
	return out, err
}

func (r runtime) onHostNetwork(uid types.UID, sandbox string) bool {
	obs := r.host.Observed(uid).Pod
	for i := range obs.Sandboxes {
		if s := &obs.Sandboxes[i]; s.ID == sandbox {
			return s.HostNetwork
		}
	}
	return false
}

// Containers implements block.Runtime. An error with containers means that their usage could not be
// measured.
func (r runtime) Containers(ctx context.Context, measured bool) ([]stats.Container, error) {
	list, err := r.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	var used map[string]*runtimeapi.ContainerStats
	if measured {
		used, err = r.measure(ctx)
	}
	out := make([]stats.Container, 0, len(list))
	for _, c := range list {
		name := c.GetLabels()[cri.LabelContainerName]
		if name == "" {
			continue
		}
		s := stats.Container{
			ID: c.GetId(), Name: name, SandboxID: c.GetPodSandboxId(), Attempt: c.GetMetadata().GetAttempt(), CreatedAt: time.Unix(0, c.GetCreatedAt()),
			Running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
		}
		s.StartedAt = startOf(r.host.Observed(types.UID(c.GetLabels()[cri.LabelPodUID])).Pod, s.ID)
		if u := used[s.ID]; u != nil {
			s.Usage, s.Layer = usageOf(u), layerOf(u.GetWritableLayer())
		}
		out = append(out, s)
	}
	return out, err
}

func startOf(obs *observed.Pod, container string) time.Time {
	for i := range obs.Containers {
		if c := &obs.Containers[i]; c.ID == container {
			return c.StartedAt
		}
	}
	return time.Time{}
}

// measure returns the usage of all containers. If the runtime does not support the call, the result
// is empty.
func (r runtime) measure(ctx context.Context) (map[string]*runtimeapi.ContainerStats, error) {
	list, err := r.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	out := make(map[string]*runtimeapi.ContainerStats, len(list))
	for _, s := range list {
		out[s.GetAttributes().GetId()] = s
	}
	return out, err
}

// Filesystems implements block.Runtime.
func (r runtime) Filesystems(ctx context.Context) (images, containers []stats.Filesystem, err error) {
	info, err := r.cfg.Images.ImageFsInfo(ctx)
	list := func(of []*runtimeapi.FilesystemUsage) (out []stats.Filesystem) {
		for _, f := range of {
			out = append(out, *layerOf(f))
		}
		return out
	}
	return list(info.GetImageFilesystems()), list(info.GetContainerFilesystems()), err
}

func number(v *runtimeapi.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	n := v.GetValue()
	return &n
}

func usageOf(s *runtimeapi.ContainerStats) *stats.Usage {
	cpu, mem, swap := s.GetCpu(), s.GetMemory(), s.GetSwap()
	u := &stats.Usage{
		At: time.Now(), CPU: number(cpu.GetUsageCoreNanoSeconds()), CPURate: number(cpu.GetUsageNanoCores()),
		Memory: number(mem.GetUsageBytes()), WorkingSet: number(mem.GetWorkingSetBytes()), RSS: number(mem.GetRssBytes()),
		Faults: number(mem.GetPageFaults()), MajorFaults: number(mem.GetMajorPageFaults()),
		Swap: number(swap.GetSwapUsageBytes()),
	}
	for _, at := range []int64{cpu.GetTimestamp(), mem.GetTimestamp()} {
		if at != 0 {
			u.At = time.Unix(0, at)
			break
		}
	}
	if left := number(mem.GetAvailableBytes()); left != nil && *left != 0 && u.WorkingSet != nil {
		limit := *left + *u.WorkingSet
		u.MemoryLimit = &limit
	}
	return u
}

func layerOf(f *runtimeapi.FilesystemUsage) *stats.Filesystem {
	if f == nil {
		return nil
	}
	return &stats.Filesystem{
		Mountpoint: f.GetFsId().GetMountpoint(), Used: number(f.GetUsedBytes()), InodesUsed: number(f.GetInodesUsed()),
		At: time.Unix(0, f.GetTimestamp()),
	}
}
