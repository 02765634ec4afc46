package resources

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/memmgr"
	"github.com/nodewright/nodewright/numa"
	"github.com/nodewright/nodewright/podlife"
)

// reasonNotReady is the reason of a pod that waits until its allocation is recorded.
const reasonNotReady = "PlacementNotReady"

// Prepare implements part.Preparer: before the pod's containers start, its allocation is recorded
// and no other container runs on its exclusive CPUs.
func (p *Placement) Prepare(ctx context.Context, pod *v1.Pod, obs *observed.Pod) error {
	if p.idle {
		return nil
	}
	p.seen(obs)
	if _, _, restored := p.now(); !restored {
		return podlife.WithReason(reasonNotReady, errNotRestored)
	}
	if err := p.write(ctx, pod.UID); err != nil {
		return podlife.WithReason(reasonNotReady, fmt.Errorf("write checkpoint of the pod's resources: %w", err))
	}
	if err := p.evacuate(ctx, pod.UID); err != nil {
		return podlife.WithReason(reasonNotReady, err)
	}
	return nil
}

// evacuate moves other containers off a pod's exclusive CPUs.
func (p *Placement) evacuate(ctx context.Context, uid types.UID) error {
	own := p.contested(uid)
	err := p.apply(ctx, !own.Empty())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.logged("failed to update cpusets of containers", err)
	if own.Empty() {
		return nil
	}
	return p.clear(uid, own, err)
}

// contested returns the exclusive CPUs of a pod that other containers may still use.
func (p *Placement) contested(uid types.UID) numa.CPUSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	var own numa.CPUSet
	if e := p.pods[uid]; e == nil || e.clear {
		return own
	}
	pod, _ := p.node.State.CPU.Pod(string(uid))
	own = pod.Pool
	for _, c := range pod.Containers {
		own = own.Union(c.CPUs)
	}
	return own
}

// clear records that no other container runs on a pod's exclusive CPUs. If one still does, it
// returns an error that names this container and wraps cause, the error of setting the cpusets.
// No other container gets these CPUs later, since each container is created with the CPUs that it
// has at that moment.
func (p *Placement) clear(uid types.UID, exclusive numa.CPUSet, cause error) error {
	if errors.Is(cause, errCreating) {
		return fmt.Errorf("other containers may still run on CPUs %s: %w", exclusive, cause)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.live {
		if c.uid == uid || c.cpus.Union(c.also).IntersectLen(exclusive) == 0 && !c.unknown {
			continue
		}
		if _, known := p.wants(c); known {
			return fmt.Errorf("container %s of pod %s (%s) still runs on CPUs %s: %w", c.name, c.uid, id, c.cpus.Intersect(exclusive), cause)
		}
	}
	if e := p.pods[uid]; e != nil {
		e.clear = true
	}
	return nil
}

// CheckResize implements part.ResizeChecker.
func (p *Placement) CheckResize(current, wanted *v1.Pod) error {
	have, want := fit.Pod(current), fit.Pod(wanted)
	node, _, _ := p.now()
	requests := map[string]int64{}
	for _, c := range want.Containers {
		requests[c.Name] = c.MilliCPU
	}
	for i, c := range have.Containers {
		milli, ok := requests[c.Name]
		if !ok {
			continue
		}
		if _, err := node.CPU.Resize(node.State.CPU, have, i, milli); err != nil {
			return &part.ResizeError{Detail: "guaranteed_pod_cpu_manager_static_policy", Err: err}
		}
	}
	if m, ok := node.Memory.(memmgr.Resizer); ok {
		if err := m.Resize(node.State.Memory, have, want); err != nil {
			return &part.ResizeError{Detail: "guaranteed_pod_memory_manager_static_policy", Err: err}
		}
	}
	return nil
}
