//go:build linux

package localcri

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/localcri/internal/life"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// merge returns the current resources with the changes of an update. A value of 0 or "" in the
// update means that the resource stays as it is.
func merge(current, update *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	out := proto.CloneOf(current)
	if out == nil {
		out = &runtimeapi.LinuxContainerResources{}
	}
	for _, n := range []struct {
		to   *int64
		from int64
	}{
		{&out.CpuPeriod, update.GetCpuPeriod()}, {&out.CpuQuota, update.GetCpuQuota()}, {&out.CpuShares, update.GetCpuShares()},
		{&out.MemoryLimitInBytes, update.GetMemoryLimitInBytes()}, {&out.MemorySwapLimitInBytes, update.GetMemorySwapLimitInBytes()},
		{&out.OomScoreAdj, update.GetOomScoreAdj()},
	} {
		if n.from != 0 {
			*n.to = n.from
		}
	}
	// The limit of memory and swap together changes with the memory limit, unless the update sets
	// it: the old value may be below the new memory limit, which kernels reject.
	if update.GetMemoryLimitInBytes() != 0 && update.GetMemorySwapLimitInBytes() == 0 {
		out.MemorySwapLimitInBytes = update.GetMemoryLimitInBytes()
	}
	if s := update.GetCpusetCpus(); s != "" {
		out.CpusetCpus = s
	}
	if s := update.GetCpusetMems(); s != "" {
		out.CpusetMems = s
	}
	for _, l := range update.GetHugepageLimits() {
		found := false
		for _, existing := range out.GetHugepageLimits() {
			if existing.GetPageSize() == l.GetPageSize() {
				existing.Limit, found = l.GetLimit(), true
			}
		}
		if !found {
			out.HugepageLimits = append(out.HugepageLimits, proto.CloneOf(l))
		}
	}
	if u := update.GetUnified(); len(u) > 0 {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		maps.Copy(out.Unified, u)
	}
	return out
}

// UpdateContainerResources changes the resources of a container. A value that is 0 or empty
// leaves the resource as it is. After an error, ContainerStatus shows the previous resources,
// which are still in effect.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, update *runtimeapi.ContainerResources) error {
	c, err := r.lookContainer(ctx, id)
	if err != nil {
		return err
	}
	if update.GetWindows() != nil {
		return invalid("windows", "", "must be empty on Linux")
	}
	changes := proto.CloneOf(update.GetLinux())
	if r.cfg.Hooks == nil {
		o, err := c.beginUpdate(ctx, changes)
		if err != nil {
			return err
		}
		return o.wait(ctx)
	}
	return r.begin(func(ctx context.Context) error { return c.updateHooked(ctx, changes) }).wait(ctx)
}

// updateHooked changes resources as the hooks say. They are asked before the update begins: it
// would keep other updates waiting, also those that the hooks request.
func (c *container) updateHooked(ctx context.Context, changes *runtimeapi.LinuxContainerResources) error {
	r := c.rt()
	changes, others, err := r.cfg.Hooks.Update(ctx, c.pod.hookPod(), c.hookContainer(nil), changes)
	if err != nil {
		return fmt.Errorf("UpdateContainer: %w", err)
	}
	if err := r.updateAll(ctx, others); err != nil {
		return err
	}
	o, err := c.beginUpdate(ctx, changes)
	if err != nil {
		return err
	}
	if err := o.wait(ctx); err != nil {
		return err
	}
	return c.hook(ctx, HookUpdated)
}

// beginUpdate starts an update after the previous update has ended, since the new resources
// depend on those of the previous update.
func (c *container) beginUpdate(ctx context.Context, update *runtimeapi.LinuxContainerResources) (*op, error) {
	for {
		c.pod.mu.Lock()
		switch phase := c.life.Phase(); phase {
		case life.Created, life.Starting, life.Running:
		case life.Removing, life.Gone:
			c.pod.mu.Unlock()
			return nil, notFound("container", c.id)
		default:
			c.pod.mu.Unlock()
			return nil, errorf(codes.FailedPrecondition, "container %s is %s; want it created or running", c.id, phase)
		}
		if busy := c.updating; busy != nil && !busy.finished() {
			c.pod.mu.Unlock()
			if err := busy.wait(ctx); ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		if start := c.starting; c.life.Phase() == life.Starting && start != nil {
			c.pod.mu.Unlock()
			if err := start.wait(ctx); ctx.Err() != nil {
				return nil, err
			}
			if !retry.Sleep(ctx, 0) {
				return nil, coded(context.Cause(ctx))
			}
			continue
		}
		o := newOp()
		c.updating = o
		c.rt().do(func(ctx context.Context) { o.finish(coded(c.update(ctx, update))) })
		c.pod.mu.Unlock()
		return o, nil
	}
}

func (c *container) update(ctx context.Context, changes *runtimeapi.LinuxContainerResources) error {
	r, p := c.rt(), c.pod
	machine, err := r.facts.Machine(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	merged, phase := merge(c.resources, changes), c.life.Phase()
	p.mu.Unlock()
	spec, err := ocispec.Resources(merged, machine)
	if err != nil {
		return err
	}
	b, err := proto.Marshal(merged)
	if err != nil {
		return err
	}
	if phase == life.Created {
		if err := c.updateBundle(spec); err != nil {
			return err
		}
	} else {
		_, x, err := r.handler(p.handler)
		if err != nil {
			return err
		}
		if err := x.Update(ctx, c.id, spec); err != nil {
			return err
		}
	}
	p.mu.Lock()
	c.resources, c.record.Resources = merged, b
	m, kept := p.monitor, c.keptLocked()
	p.mu.Unlock()
	c.keepRecord(ctx)
	if m != nil && phase != life.Created && kept != nil {
		step, cancel := context.WithTimeout(ctx, monitorTimeout)
		defer cancel()
		_ = m.Keep(step, c.id, kept) // an older copy does little harm
	}
	return nil
}

// UpdatePodSandboxResources stores the resources of a sandbox. The caller changes the pod's
// cgroup itself.
func (r *Runtime) UpdatePodSandboxResources(ctx context.Context, q *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	p, err := r.lookPod(ctx, q.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	overhead, err := proto.Marshal(q.GetOverhead())
	if err != nil {
		return nil, invalid("overhead", err, "must be a message")
	}
	resources, err := proto.Marshal(q.GetResources())
	if err != nil {
		return nil, invalid("resources", err, "must be a message")
	}
	if r.cfg.Hooks != nil {
		changed := p.hookPod()
		changed.Overhead, changed.Resources = proto.CloneOf(q.GetOverhead()), proto.CloneOf(q.GetResources())
		if err := r.hook(ctx, HookPodUpdate, changed, nil); err != nil {
			return nil, coded(err)
		}
	}
	p.mu.Lock()
	p.record.Overhead, p.record.Resources = overhead, resources
	p.mu.Unlock()
	if err := p.save(ctx); err != nil {
		return nil, coded(err)
	}
	_ = p.hook(ctx, HookPodUpdated)
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
