package statusmgr

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Remembering returns a Sink that is also a [Loader] and a [Pruner], for a sink that cannot read
// its statuses back. It writes each status to sink and then to memory, so that start times,
// transition times and ages survive a restart of the agent. If memory fails, both writes are
// repeated: calls of sink must be idempotent.
//
//	memory, err := statusmgr.NewFileSink(statusmgr.FileSinkConfig{Dir: "/var/lib/edge/status"})
//	if err != nil {
//		return err
//	}
//	sink := statusmgr.Remembering(uplink, memory)
func Remembering(sink Sink, memory *FileSink) Sink { return remembering{sink, memory} }

type remembering struct {
	sink   Sink
	memory *FileSink
}

var (
	_ Loader = remembering{}
	_ Pruner = remembering{}
)

func (r remembering) Update(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	if err := r.sink.Update(ctx, pod, status); err != nil {
		return err
	}
	return r.memory.Update(ctx, pod, status)
}

// Delete deletes the pod from sink first, and then from memory.
func (r remembering) Delete(ctx context.Context, pod *v1.Pod) error {
	if err := r.sink.Delete(ctx, pod); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return r.memory.Delete(ctx, pod)
}

func (r remembering) Load(ctx context.Context) (map[types.UID]v1.PodStatus, error) {
	return r.memory.Load(ctx)
}

func (r remembering) Prune(keep map[types.UID]bool) error { return r.memory.Prune(keep) }
