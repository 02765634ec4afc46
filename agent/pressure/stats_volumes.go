package pressure

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/volumemgr"
)

// volumes provides the pods' volumes for package node/stats.
type volumes struct{ part *Stats }

// Stats implements [stats.Volumes].
func (v volumes) Stats(ctx context.Context, uid types.UID) ([]stats.Volume, error) {
	list, err := v.measure(ctx, uid)
	out := make([]stats.Volume, 0, len(list))
	for i := range list {
		s := &list[i]
		if v.part.cfg.NoVolumes && !s.Ephemeral {
			continue
		}
		vol := stats.Volume{Ephemeral: s.Ephemeral}
		vol.Name, vol.FsStats = s.Name, fsOf(s.Usage)
		if s.Claim != "" {
			if pod, ok := v.part.host.Pod(uid); ok {
				vol.PVCRef = &statsapi.PVCReference{Name: s.Claim, Namespace: pod.Namespace}
			}
		}
		out = append(out, vol)
	}
	return out, err
}

// fsOf converts the usage of a volume. Values that are unknown (-1) are nil in the result.
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

func (v volumes) measure(ctx context.Context, uid types.UID) ([]volumemgr.Stats, error) {
	if v.part.cfg.Volumes != nil {
		return v.part.cfg.Volumes.Stats(ctx, uid)
	}
	if m, ok := v.part.host.(part.VolumeMeter); ok {
		return m.VolumeStats(ctx, uid)
	}
	return nil, nil
}
