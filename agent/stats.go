package agent

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/volumemgr"
)

// Summary tells what the node and all that is on it use, as the kubelet's
// /stats/summary does, not older than a second. It holds what could be read
// even beside an error, which joins what could not; it is nil only if ctx
// ended. It is shared: it must not be changed.
func (a *Agent) Summary(ctx context.Context) (*statsapi.Summary, error) {
	return a.stats.Summary(ctx)
}

// CPUAndMemory is a Summary without file systems, networks and volumes.
func (a *Agent) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return a.stats.CPUAndMemory(ctx)
}

// noPodsCgroup tells package stats that pods are where the runtime puts them.
const noPodsCgroup = "-"

// podsCgroup is the cgroup of all pods, below the mount points; noPodsCgroup
// if there is none, or Config.Cgroups does not tell.
func (a *Agent) podsCgroup() string {
	if c, ok := a.cfg.Cgroups.(interface{ Root() string }); ok {
		return c.Root()
	}
	return noPodsCgroup
}

// newStats makes what reads figures, and has them told as metrics.
func (a *Agent) newStats() error {
	c := &a.cfg
	var err error
	a.stats, err = stats.New(stats.Config{
		NodeName: c.Node.Name, Runtime: criStats{runtime: c.Runtime, images: c.Images, known: a.pleg.Get},
		Volumes: a.volumeStats(), PodsCgroup: a.podsCgroup(), SystemCgroups: c.SystemCgroups,
		RootDir: c.RootDir, LogDir: c.PodLogsDir,
	})
	if err != nil || c.Metrics == nil {
		return err
	}
	if err := c.Metrics.Register(a.stats.ResourceMetrics()); err != nil {
		return err
	}
	return c.Metrics.Register(a.stats.VolumeMetrics())
}

// criStats is a CRI runtime as package stats asks for it.
type criStats struct {
	runtime criapi.RuntimeService
	images  criapi.ImageManagerService
	// known is what was seen of a pod: it has what lists of the runtime lack.
	known func(types.UID) (*observed.Pod, error)
}

// Sandboxes implements stats.Runtime. Those of nobody's pods are left out.
func (r criStats) Sandboxes(ctx context.Context) ([]stats.Sandbox, error) {
	list, err := r.runtime.ListPodSandbox(ctx, nil)
	out := make([]stats.Sandbox, 0, len(list))
	for _, s := range list {
		uid := types.UID(s.GetLabels()[cri.LabelPodUID])
		if uid == "" {
			continue
		}
		out = append(out, stats.Sandbox{
			ID: s.GetId(), UID: uid, Name: s.GetLabels()[cri.LabelPodName], Namespace: s.GetLabels()[cri.LabelPodNamespace],
			CreatedAt: time.Unix(0, s.GetCreatedAt()), Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
			HostNetwork: r.onHostNetwork(uid, s.GetId()),
		})
	}
	return out, err
}

func (r criStats) onHostNetwork(uid types.UID, sandbox string) bool {
	obs, _ := r.known(uid) // also what was seen before the last look failed
	if obs == nil {
		return false
	}
	for i := range obs.Sandboxes {
		if s := &obs.Sandboxes[i]; s.ID == sandbox {
			return s.HostNetwork
		}
	}
	return false
}

// Containers implements stats.Runtime. The error beside containers is that of
// what they use.
func (r criStats) Containers(ctx context.Context, measured bool) ([]stats.Container, error) {
	list, err := r.runtime.ListContainers(ctx, nil)
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
			ID: c.GetId(), Name: name, SandboxID: c.GetPodSandboxId(), CreatedAt: time.Unix(0, c.GetCreatedAt()),
			Running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
		}
		if obs, _ := r.known(types.UID(c.GetLabels()[cri.LabelPodUID])); obs != nil {
			s.StartedAt = startOf(obs, s.ID)
		}
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

// measure asks what all containers use. A runtime that has no such call has
// measured nothing.
func (r criStats) measure(ctx context.Context) (map[string]*runtimeapi.ContainerStats, error) {
	list, err := r.runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	out := make(map[string]*runtimeapi.ContainerStats, len(list))
	for _, s := range list {
		out[s.GetAttributes().GetId()] = s
	}
	return out, err
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

// Filesystems implements stats.Runtime.
func (r criStats) Filesystems(ctx context.Context) (images, containers []stats.Filesystem, err error) {
	info, err := r.images.ImageFsInfo(ctx)
	list := func(of []*runtimeapi.FilesystemUsage) (out []stats.Filesystem) {
		for _, f := range of {
			out = append(out, *layerOf(f))
		}
		return out
	}
	return list(info.GetImageFilesystems()), list(info.GetContainerFilesystems()), err
}

// volumeStats are what the volumes measure; nil if they do not.
func (a *Agent) volumeStats() stats.Volumes {
	if m, ok := a.volumes.(volumeMeter); ok {
		return volumeStats{m, a}
	}
	return nil
}

type volumeMeter interface {
	Stats(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error)
}

type volumeStats struct {
	volumeMeter
	*Agent
}

// Stats implements stats.Volumes.
func (v volumeStats) Stats(ctx context.Context, uid types.UID) ([]stats.Volume, error) {
	list, err := v.volumeMeter.Stats(ctx, uid)
	out := make([]stats.Volume, 0, len(list))
	for i := range list {
		s := &list[i]
		vol := stats.Volume{Ephemeral: s.Ephemeral}
		vol.Name, vol.FsStats = s.Name, fsOf(s.Usage)
		if s.Claim != "" {
			if pod, ok := v.pods.Pod(uid); ok {
				vol.PVCRef = &statsapi.PVCReference{Name: s.Claim, Namespace: pod.Namespace}
			}
		}
		out = append(out, vol)
	}
	return out, err
}

// fsOf turns what is not known, -1, into nil.
func fsOf(u volumemgr.Usage) statsapi.FsStats {
	known := func(n int64) *uint64 {
		if n < 0 {
			return nil
		}
		v := uint64(n)
		return &v
	}
	f := statsapi.FsStats{
		CapacityBytes: known(u.Capacity), AvailableBytes: known(u.Available), UsedBytes: known(u.Used),
		Inodes: known(u.Inodes), InodesFree: known(u.InodesFree), InodesUsed: known(u.InodesUsed),
	}
	f.Time.Time = u.At
	return f
}
