package eviction

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Signal is a figure of one's own that can run low, such as the room on a device for caches or
// the licenses of a site. Config.Thresholds says below what it is low. A goroutine of its own
// watches it, as it is done for memory, disks and processes: with a condition, soft and hard thresholds,
// notifiers and decisions. Pods of the lowest priority are evicted first, and among equals the one that
// uses most. Name, Condition and Read are required.
type Signal struct {
	// Name is what thresholds and notifiers call the signal, such as "cache.available". No other
	// signal has it, those of package rank included.
	Name rank.Signal
	// Condition is the condition of the node that is true while the signal is low. Nothing
	// else sets it.
	Condition v1.NodeConditionType
	// Taint is what [Manager.Taints] has while the condition is true; none.
	Taint *v1.Taint
	// Read reads how much is available, in units of one's own, as the methods of [Stats] do.
	Read func(ctx context.Context) (rank.Observation, error)
	// Usage reads how much each of the pods uses. One that is missing from the
	// result has no figure. Nil: not known of any pod, and one is evicted at a time.
	Usage func(ctx context.Context, pods []*v1.Pod) (map[types.UID]int64, error)
	// Reclaim frees what no pod needs, before pods are evicted, as the methods of [Reclaimer]
	// do; nil: nothing can be reclaimed.
	Reclaim func(ctx context.Context) error
}
