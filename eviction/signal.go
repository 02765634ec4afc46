package eviction

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/eviction/rank"
)

// Signal is a custom resource of the node that can run low, such as space on a cache device. It
// works like memory, disks and processes, with its own goroutine, condition, soft and hard
// thresholds (Config.Thresholds), notifiers and decisions. Pods of the lowest priority are
// evicted first, and among equals the one with the highest usage. Name, Condition and Read are
// required.
type Signal struct {
	// Name is the name in thresholds and notifiers, such as "cache.available". It must be
	// unique, also among the signals of package rank.
	Name rank.Signal
	// Condition is the node condition that is true while the signal is low. Nothing else may set
	// it.
	Condition v1.NodeConditionType
	// Read returns the available amount, in any unit, with the rules of [Stats].
	Read func(ctx context.Context) (rank.Observation, error)
	// Usage returns the usage of the pods. A missing pod has no figure. If Usage is nil, no
	// usage is known, and one pod is evicted at a time.
	Usage func(ctx context.Context, pods []*v1.Pod) (map[types.UID]int64, error)
	// Reclaim frees what no pod needs, before pods are evicted, with the rules of [Reclaimer]. If
	// Reclaim is nil, nothing can be reclaimed.
	Reclaim func(ctx context.Context) error
}
