package pressure

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/eviction/rank"
)

// fromCgroups reads usage from the pods' cgroups; the names of containers come from the
// observations of the pods.
func (f figures) fromCgroups(out map[types.UID]*rank.Usage, pods []*v1.Pod) error {
	found, err := f.block.PodUsages(among(pods))
	for uid, u := range found {
		usage := &rank.Usage{Time: u.At, Memory: known(u.WorkingSet), Processes: known(u.Tasks)}
		obs := f.host.Observed(uid).Pod
		for i := range obs.Containers {
			c := &obs.Containers[i]
			if cu := u.Containers[c.ID]; cu != nil {
				usage.Containers = append(usage.Containers, rank.ContainerUsage{Name: c.Name, Memory: known(cu.WorkingSet)})
			}
		}
		out[uid] = usage
	}
	return err
}

// fromSummary reads the usage of pods from a summary.
func fromSummary(out map[types.UID]*rank.Usage, read func() ([]statsapi.PodStats, error)) error {
	at := time.Now()
	list, err := read()
	for i := range list {
		out[types.UID(list[i].PodRef.UID)] = usageOfPod(&list[i], at)
	}
	return err
}

// usageOfPod converts a pod's statistics for package eviction.
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
		u.EphemeralStorage, u.EphemeralInodes = known(p.EphemeralStorage.UsedBytes), known(p.EphemeralStorage.InodesUsed)
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

// known returns the value of n. It returns 0 if n is nil.
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
