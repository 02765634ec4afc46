package agent

import (
	"context"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/eviction/threshold"
	"github.com/nodewright/nodewright/node/stats"
)

// evictionStats are the figures of package node/stats, as package eviction asks
// for them: each question reads what it needs and no more, and those about
// memory and threads read files alone.
type evictionStats struct{ *Agent }

// Memory implements eviction.Stats.
func (s evictionStats) Memory(context.Context) (eviction.Memory, error) {
	node, pods, err := s.stats.Memory()
	return eviction.Memory{Node: memoryFigure(node), Pods: memoryFigure(pods)}, err
}

// memoryFigure is nil for what has no limit: nothing says when it is full.
func memoryFigure(u *stats.Usage) *eviction.MemoryFigure {
	if u == nil || u.Memory == nil || u.WorkingSet == nil {
		return nil
	}
	limit, ok := u.Limit()
	if !ok {
		return nil
	}
	return &eviction.MemoryFigure{
		Observation:  threshold.Observation{Available: clamp(limit) - min(clamp(*u.WorkingSet), clamp(limit)), Capacity: clamp(limit), Time: u.At},
		InactiveFile: clamp(*u.Memory) - clamp(*u.WorkingSet),
	}
}

// Disks implements eviction.Stats.
func (s evictionStats) Disks(ctx context.Context) (eviction.Disks, error) {
	d, err := s.stats.Disks(ctx)
	return eviction.Disks{Node: filesystem(d.Node), Image: filesystem(d.Images), Container: filesystem(d.Containers)}, err
}

// filesystem leaves inodes out where the file system makes them as it needs
// them.
func filesystem(d *stats.NodeDisk) eviction.Filesystem {
	if d == nil {
		return eviction.Filesystem{}
	}
	out := eviction.Filesystem{
		Device: strconv.FormatUint(d.Device, 10),
		Bytes:  &threshold.Observation{Available: clamp(d.Available), Capacity: clamp(d.Capacity), Time: d.At},
	}
	if d.Inodes > 0 {
		out.Inodes = &threshold.Observation{Available: clamp(d.InodesFree), Capacity: clamp(d.Inodes), Time: d.At}
	}
	return out
}

// Processes implements eviction.Stats. What the kernel limits are threads.
func (s evictionStats) Processes(context.Context) (threshold.Observation, error) {
	r, err := s.stats.Threads()
	if err != nil {
		return threshold.Observation{}, err
	}
	if r.MaxPID == nil || r.NumOfRunningProcesses == nil {
		return threshold.Observation{}, errNoThreads
	}
	return threshold.Observation{Available: *r.MaxPID - *r.NumOfRunningProcesses, Capacity: *r.MaxPID, Time: r.Time.Time}, nil
}

// Pods implements eviction.Stats.
func (s evictionStats) Pods(ctx context.Context, pods []*v1.Pod, want eviction.Want) (map[types.UID]*rank.Usage, error) {
	out := make(map[types.UID]*rank.Usage, len(pods))
	var err error
	switch {
	case want == eviction.WantDisk:
		err = s.fromSummary(out, func() ([]statsapi.PodStats, error) { return s.stats.Pods(ctx, uids(pods)) })
		s.freshen(ctx, pods, out)
	case s.podsCgroup() == noPodsCgroup:
		err = s.fromSummary(out, func() ([]statsapi.PodStats, error) {
			sum, err := s.stats.CPUAndMemory(ctx)
			if sum == nil {
				return nil, err
			}
			return sum.Pods, err
		})
	default:
		err = s.fromCgroups(out, pods)
	}
	for _, p := range pods {
		// What runs nothing uses no memory, and is no reason to end it.
		if obs, oerr := s.pleg.Get(p.UID); out[p.UID] == nil && want != eviction.WantDisk && oerr == nil && !obs.AnyRunning() {
			out[p.UID] = &rank.Usage{Time: obs.ObservedAt}
		}
	}
	return out, err
}

// fromCgroups has the names of containers from what was seen of their pods.
func (s evictionStats) fromCgroups(out map[types.UID]*rank.Usage, pods []*v1.Pod) error {
	found, err := s.stats.PodUsages(uids(pods))
	for uid, u := range found {
		usage := &rank.Usage{Time: u.At, Memory: known(u.WorkingSet), Processes: known(u.Tasks)}
		obs, _ := s.pleg.Get(uid) // also what was seen before the last look failed
		for i := 0; obs != nil && i < len(obs.Containers); i++ {
			c := &obs.Containers[i]
			if cu := u.Containers[c.ID]; cu != nil {
				usage.Containers = append(usage.Containers, rank.ContainerUsage{Name: c.Name, Memory: known(cu.WorkingSet)})
			}
		}
		out[uid] = usage
	}
	return err
}

// fromSummary takes all that a summary has of pods.
func (s evictionStats) fromSummary(out map[types.UID]*rank.Usage, read func() ([]statsapi.PodStats, error)) error {
	at := time.Now()
	list, err := read()
	for i := range list {
		out[types.UID(list[i].PodRef.UID)] = usageOfPod(&list[i], at)
	}
	return err
}

// usageOfPod is what package rank compares of a pod's statistics.
func usageOfPod(p *statsapi.PodStats, at time.Time) *rank.Usage {
	u := &rank.Usage{Time: at}
	if m := p.Memory; m != nil {
		u.Memory = known(m.WorkingSetBytes)
		if !m.Time.IsZero() {
			u.Time = m.Time.Time
		}
	}
	if p.ProcessStats != nil {
		u.Processes = known(p.ProcessStats.ProcessCount)
	}
	if p.EphemeralStorage != nil {
		u.EphemeralStorage = known(p.EphemeralStorage.UsedBytes)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		cu := rank.ContainerUsage{Name: c.Name, Rootfs: diskOf(c.Rootfs), Logs: diskOf(c.Logs)}
		if c.Memory != nil {
			cu.Memory = known(c.Memory.WorkingSetBytes)
		}
		u.Containers = append(u.Containers, cu)
	}
	for i := range p.VolumeStats {
		v := &p.VolumeStats[i]
		if d := diskOf(&v.FsStats); d != nil {
			u.Volumes = append(u.Volumes, rank.VolumeUsage{Name: v.Name, Used: *d, Time: v.Time.Time})
		}
	}
	return u
}

// known is 0 for what is not known.
func known(n *uint64) int64 {
	if n == nil {
		return 0
	}
	return clamp(*n)
}

func diskOf(f *statsapi.FsStats) *rank.Disk {
	if f == nil || f.UsedBytes == nil {
		return nil
	}
	return &rank.Disk{Bytes: known(f.UsedBytes), Inodes: known(f.InodesUsed)}
}
