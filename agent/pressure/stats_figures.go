package pressure

import (
	"context"
	"errors"
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/eviction"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/node/stats"
)

var errNoThreads = errors.New("the number of the node's threads is unknown")

// ForEviction returns the measurements for package eviction. Each method reads only the values
// that it returns; Memory and Processes read only files of the kernel. Volumes with a limit are
// measured only while Run runs.
func (p *Stats) ForEviction() eviction.Stats { return figures{p} }

// figures implements eviction.Stats for Stats.
type figures struct{ *Stats }

// Memory implements eviction.Stats.
func (f figures) Memory(context.Context) (eviction.Memory, error) {
	node, pods, err := f.block.Memory()
	return eviction.Memory{Node: memoryFigure(node), Pods: memoryFigure(pods)}, err
}

// memoryFigure converts the usage of memory. It returns nil if there is no limit with
// which the usage could be compared.
func memoryFigure(u *stats.Usage) *eviction.MemoryFigure {
	if u == nil || u.Memory == nil || u.WorkingSet == nil {
		return nil
	}
	limit, ok := u.Limit()
	if !ok {
		return nil
	}
	return &eviction.MemoryFigure{
		Observation:  rank.Observation{Available: clamp(limit) - min(clamp(*u.WorkingSet), clamp(limit)), Capacity: clamp(limit), Time: u.At},
		InactiveFile: clamp(*u.Memory) - clamp(*u.WorkingSet),
	}
}

// clamp converts an unsigned number to a signed one; larger values become the maximum.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// Disks implements eviction.Stats.
func (f figures) Disks(ctx context.Context) (eviction.Disks, error) {
	d, err := f.block.Disks(ctx)
	return eviction.Disks{Node: filesystem(d.Node), Image: filesystem(d.Images), Container: filesystem(d.Containers)}, err
}

// filesystem converts the usage of a file system. It leaves out inodes if the file
// system allocates them dynamically.
func filesystem(d *stats.FilesystemDisk) eviction.Filesystem {
	if d == nil {
		return eviction.Filesystem{}
	}
	out := eviction.Filesystem{
		Device: strconv.FormatUint(d.Device, 10),
		Bytes:  &rank.Observation{Available: clamp(d.Available), Capacity: clamp(d.Capacity), Time: d.At},
	}
	if d.Inodes > 0 {
		out.Inodes = &rank.Observation{Available: clamp(d.InodesFree), Capacity: clamp(d.Inodes), Time: d.At}
	}
	return out
}

// Processes implements eviction.Stats. The kernel limits and counts threads.
func (f figures) Processes(context.Context) (rank.Observation, error) {
	r, err := f.block.Threads()
	if err != nil {
		return rank.Observation{}, err
	}
	if r.MaxPID == nil || r.NumOfRunningProcesses == nil {
		return rank.Observation{}, errNoThreads
	}
	return rank.Observation{Available: *r.MaxPID - *r.NumOfRunningProcesses, Capacity: *r.MaxPID, Time: r.Time.Time}, nil
}

// Pods implements eviction.Stats.
func (f figures) Pods(ctx context.Context, pods []*v1.Pod, want eviction.Want) (map[types.UID]*rank.Usage, error) {
	out := make(map[types.UID]*rank.Usage, len(pods))
	var err error
	switch {
	case want == eviction.WantDisk:
		err = fromSummary(out, func() ([]statsapi.PodStats, error) { return f.block.Pods(ctx, among(pods)) })
		f.freshen(ctx, pods, out)
	case f.cfg.PodsCgroup == NoCgroup:
		err = fromSummary(out, func() ([]statsapi.PodStats, error) {
			sum, err := f.block.CPUAndMemory(ctx)
			if sum == nil {
				return nil, err
			}
			return sum.Pods, err
		})
	default:
		err = f.fromCgroups(out, pods)
	}
	for _, p := range pods {
		// A pod without a running container uses no memory: evicting it would free none.
		if seen := f.host.Observed(p.UID); out[p.UID] == nil && want != eviction.WantDisk && seen.Runs() == observed.No {
			out[p.UID] = &rank.Usage{Time: seen.Pod.ObservedAt}
		}
	}
	return out, err
}

// among returns a function that reports whether one of the pods has a UID.
func among(pods []*v1.Pod) func(types.UID) bool {
	set := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		set[p.UID] = true
	}
	return func(uid types.UID) bool { return set[uid] }
}
