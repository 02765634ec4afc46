package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/fit"
	"github.com/nodewright/nodewright/numa"
)

// callTimeout limits a call of the runtime for one container.
const callTimeout = 10 * time.Second

// step is a cpuset to be set.
type step struct {
	id   string
	cpus numa.CPUSet
}

// steps returns the changes of live containers in order: first those that lose CPUs, then those
// that move, then those that get more. (cpumgr.Diff returns the same order for two known states.)
func (p *Placement) steps() []step {
	p.mu.Lock()
	defer p.mu.Unlock()
	var shrink, move, grow []step
	for _, id := range slices.Sorted(maps.Keys(p.live)) {
		c := p.live[id]
		want, ok := p.wants(c)
		if !ok || want.Equal(c.cpus) && c.also.Empty() && !c.unknown {
			continue
		}
		has := c.cpus.Union(c.also)
		both := want.Intersect(has)
		switch {
		case c.unknown, both.Empty(), want.Equal(has):
			move = append(move, step{id, want})
			continue
		case !both.Equal(has):
			shrink = append(shrink, step{id, both})
		}
		if !both.Equal(want) {
			grow = append(grow, step{id, want})
		}
	}
	return slices.Concat(shrink, move, grow)
}

// wants returns the cpuset that a live container should have. It returns false if that is not
// known. The caller holds p.mu.
func (p *Placement) wants(c *container) (numa.CPUSet, bool) {
	if p.pods[c.uid] == nil {
		return numa.CPUSet{}, false // no source has delivered its pod yet
	}
	want := p.node.State.CPU.Wanted(string(c.uid), c.name)
	switch {
	case !want.Empty():
		return want, true
	case p.cfg.Fit.CPUPolicy == "" || p.cfg.Fit.CPUPolicy == fit.CPUNone:
		all := p.cfg.Fit.Machine.AllCPUs()
		return all, c.bound && !all.Empty() // a container that another policy has bound is released
	default:
		return want, false // no CPU is left to share, and the kernel does not allow an empty cpuset
	}
}

// errCreating means that containers were being created all the time, so that it is not known
// which CPUs are in use.
var errCreating = errors.New("the CPUs in use are unknown: containers are being created all the time")

// apply sets the cpusets of live containers. Before that, it waits for the end of running
// creations. If barrier is true, it waits for them even if no cpuset has to be set. The next call
// repeats changes that have failed.
func (p *Placement) apply(ctx context.Context, barrier bool) error {
	if !barrier && len(p.steps()) == 0 {
		return nil
	}
	actx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.creating.Acquire(actx, allCreations); err != nil {
		return errors.Join(ctx.Err(), errCreating)
	}
	defer p.creating.Release(allCreations)
	var errs []error
	failed := map[string]bool{}
	for _, s := range p.steps() { // computed again, since containers may have changed
		if failed[s.id] {
			continue
		}
		if err := p.set(ctx, s); err != nil {
			errs, failed[s.id] = append(errs, err), true
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// set sets one cpuset.
func (p *Placement) set(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := p.cfg.Runtime.UpdateContainerResources(ctx, s.id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: s.cpus.String()},
	})
	if err != nil && p.hasExited(ctx, s.id, err) {
		p.ContainerRemoved(s.id)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.live[s.id]
	if err != nil {
		if c != nil {
			c.also = c.also.Union(s.cpus)
		}
		return fmt.Errorf("cpuset %s of container %s: %w", s.cpus, s.id, err)
	}
	if c != nil {
		c.cpus, c.also, c.bound, c.unknown = s.cpus, numa.CPUSet{}, true, false
	}
	return nil
}

// hasExited reports whether a container whose update failed has exited.
func (p *Placement) hasExited(ctx context.Context, id string, err error) bool {
	if status.Code(err) == codes.NotFound {
		return true
	}
	st, err := p.cfg.Runtime.ContainerStatus(ctx, id, false)
	return status.Code(err) == codes.NotFound || err == nil && st.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}
