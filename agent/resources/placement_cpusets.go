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

// callTimeout bounds a call of the runtime about one container.
const callTimeout = 10 * time.Second

// step is a cpuset to be set.
type step struct {
	id   string
	cpus numa.CPUSet
}

// steps lists the changes that live containers need: first all that lose CPUs,
// then those that move, then those that get more (cpumgr.Diff has the same order,
// for those who know from which state they come).
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

// wants is the cpuset that a live container is to have, and whether it is known.
// p.mu is held.
func (p *Placement) wants(c *container) (numa.CPUSet, bool) {
	if p.pods[c.uid] == nil {
		return numa.CPUSet{}, false // nobody has named its pod yet
	}
	want := p.node.State.CPU.Wanted(string(c.uid), c.name)
	switch {
	case !want.Empty():
		return want, true
	case p.cfg.Fit.CPUPolicy == "" || p.cfg.Fit.CPUPolicy == fit.CPUNone:
		all := p.cfg.Fit.Machine.AllCPUs()
		return all, c.bound && !all.Empty() // what another policy bound is free again
	default:
		return want, false // no CPU is left to share; the kernel has no such cpuset
	}
}

// errCreating means that containers were being created all the time, so that it is
// not known what they run on.
var errCreating = errors.New("the CPUs in use are unknown: containers are being created all the time")

// apply gives live containers their cpusets, after all that are being created are
// there; with barrier it waits for these in any case. What fails is tried again by
// the next caller.
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
	for _, s := range p.steps() { // as it is by now
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
