package lifecycle

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podlife"
)

// pods are the agent's, as package node knows them.
type pods struct{ *Shutdown }

// adoptedWithin bounds the wait for pods of sources that have not spoken yet when
// the machine goes down; those of the others are adopted in a tenth of a second.
const adoptedWithin = 2 * time.Second

// Active implements block.Pods. An agent that has just begun adopts what runs
// first: the machine may go down at any time.
func (p pods) Active() []*v1.Pod {
	p.adopted.Do(func() {
		late := time.NewTimer(adoptedWithin)
		defer late.Stop()
		select {
		case <-p.host.Settled():
		case <-late.C:
		}
	})
	return p.host.ActivePods()
}

// Kill implements block.Killer.
func (p pods) Kill(ctx context.Context, pod *v1.Pod, why podlife.Cause) error {
	return p.host.End(ctx, pod, why)
}

// unmountedEvery is the time between two checks whether all volumes are unmounted, while
// the machine shuts down.
const unmountedEvery = 100 * time.Millisecond

// WaitUnmounted implements block.Volumes: a pod's worker has finished when its
// volumes are gone.
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
			return errors.Join(ctx.Err(), errors.New("of "+strings.Join(left, ", ")))
		case <-tick.C:
		}
	}
}
