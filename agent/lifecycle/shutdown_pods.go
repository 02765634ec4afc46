package lifecycle

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/podlife"
	"github.com/nodewright/nodewright/podworker"
)

// pods provides the agent's pods for package node/shutdown.
type pods struct{ *Shutdown }

// adoptedWithin limits how long a shutdown waits for sources that have not delivered. Pods of
// the other sources are adopted within a tenth of a second.
const adoptedWithin = 2 * time.Second

// Active implements block.Pods. It includes terminating pods that no source wants any more. If the
// agent has just started, it first waits until running pods are adopted: the machine may shut down
// at any time.
func (p pods) Active() []*v1.Pod {
	p.adopted.Do(func() {
		late := time.NewTimer(adoptedWithin)
		defer late.Stop()
		select {
		case <-p.host.Settled():
		case <-late.C:
		}
	})
	active := p.host.ActivePods()
	listed := make(map[types.UID]bool, len(active))
	for _, pod := range active {
		listed[pod.UID] = true
	}
	for _, l := range p.host.RuntimePods() {
		if w, ok := p.host.Worker(l.UID); ok && w.Pod != nil && w.Kind != podworker.Terminated && !listed[l.UID] {
			active = append(active, w.Pod)
		}
	}
	return active
}

// Kill implements block.Killer.
func (p pods) Kill(ctx context.Context, pod *v1.Pod, cause podlife.Cause) error {
	return p.host.End(ctx, pod, cause)
}

// unmountedEvery is the time between two checks whether all volumes are unmounted.
const unmountedEvery = 100 * time.Millisecond

// WaitUnmounted implements block.Volumes. It waits until the workers of the pods have
// finished, since a worker finishes only when the pod's volumes are unmounted.
func (p pods) WaitUnmounted(ctx context.Context, list []*v1.Pod) error {
	tick := time.NewTicker(unmountedEvery)
	defer tick.Stop()
	for {
		var left []string
		for _, pod := range list {
			if w, ok := p.host.Worker(pod.UID); ok && !w.Finished {
				left = append(left, pod.Namespace+"/"+pod.Name)
			}
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New("volumes of "+strings.Join(left, ", ")+" are still mounted"))
		case <-tick.C:
		}
	}
}
