package cgroups

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

// nameOf returns the name of the pod's cgroup, which follows from its class and
// UID. The class of a pod does not change in its lifetime.
func (m *Manager) nameOf(pod *v1.Pod) (Name, error) {
	return m.tree.pod(podmeta.QOS(pod), pod.UID)
}

// Ensure creates the pod's cgroup and writes its values. For a cgroup that exists it restores the
// values that were written last, if others changed them. New requests and limits of cpu and memory
// are not written: Raise and Lower write them before and after the containers are changed, or
// Update writes them at once. It is meant to be called at each sync of the pod, and then costs
// little more than a read of each file.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod) error {
	return m.onPod(ctx, "create", pod, func(d *driver, e *podEntry, n Name, cgroup string) error {
		made, err := d.create(ctx, n)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		e.class = podmeta.QOS(pod)
		if made {
			m.tiersOutdated.Set() // the cgroups above may be new as well
			// The record belongs to a cgroup that was removed by others.
			e.applied = nil
			if err := d.fill(ctx, cgroup, want); err != nil {
				return err
			}
			e.applied = &want
			return nil
		}
		give, all := want, true
		switch {
		case e.applied != nil:
			give = want.keeping(*e.applied)
		// After a restart the written values are not known: they are read.
		default:
			have, err := d.level(ctx, cgroup)
			if err != nil {
				return err
			}
			give, all = d.on.version.adopted(have, want)
		}
		// The other values are written nevertheless: a CPU share must not wait
		// until memory is freed.
		if err := d.lowers(ctx, cgroup, give); err != nil {
			m.cfg.Log.Warn("postponed lowering of memory limit", zap.String("cgroup", cgroup), zap.Error(err))
			give.Memory, give.MemorySwap, all = nil, nil, false
		}
		err = d.apply(ctx, cgroup, give)
		// A partial write is not recorded.
		if e.applied = nil; err == nil && all {
			e.applied = &give
		}
		return err
	})
}

// Update writes all values of the pod's cgroup at once. It returns ErrInUse, and
// writes nothing, if the memory limit is at or below the usage.
func (m *Manager) Update(ctx context.Context, pod *v1.Pod) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
		have, err := d.level(ctx, cgroup)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		// Limits that the pod does not have are set to none, instead of being kept.
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			want = want.with(want.part(part{name, true}))
		}
		to := d.on.version.levelOf(want)
		if to.compare(have, part{v1.ResourceMemory, true}) < 0 {
			if err := d.room(ctx, cgroup, to.memory); err != nil {
				return err
			}
		}
		// Only if it differs: where memory is not reserved, values of other
		// programs would be cleared without need.
		if to.min+to.low != have.min+have.low {
			want = want.with(want.part(part{v1.ResourceMemory, false}))
		}
		// Nil during the write: after a failure in the middle, the cgroup's values
		// are not known.
		e.applied = nil
		if err := d.apply(ctx, cgroup, want); err != nil {
			return err
		}
		e.applied = &want
		return nil
	})
}

// Raise raises the values of cpu or memory in the pod's cgroup that are lower than the pod's: first
// the limit, then the request. Call it before the containers are raised: the kernel does not let
// children use more than their parent.
func (m *Manager) Raise(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsUp)
}

// Lower lowers the values of cpu or memory in the pod's cgroup that are higher than the pod's:
// first the request, then the limit. It returns ErrInUse for a memory limit at or below the usage.
// Call it after the containers were lowered.
func (m *Manager) Lower(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsDown)
}

// resize writes the parts of a resource that parts returns, one after the other. It
// stops at the first failure; the parts written before are kept and recorded.
func (m *Manager) resize(ctx context.Context, pod *v1.Pod, resource v1.ResourceName, parts func(have, want level, name v1.ResourceName) []part) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
		// The kernel's values decide on the direction, not the recorded ones: an
		// earlier resize may have been interrupted.
		have, err := d.level(ctx, cgroup)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		to := d.on.version.levelOf(want)
		for _, p := range parts(have, to, resource) {
			memory := p == part{v1.ResourceMemory, true}
			if memory && to.compare(have, p) < 0 {
				if err := d.room(ctx, cgroup, to.memory); err != nil {
					return err
				}
			}
			if err := d.apply(ctx, cgroup, want.part(p)); err != nil {
				return err
			}
			// Each part is recorded on its own, so that Ensure does not undo half a
			// resize. Without a record there is nothing to add to.
			if e.applied != nil {
				e.applied = ptr(e.applied.with(want.part(p)))
			}
		}
		return nil
	})
}

// lowers returns ErrInUse if r lowers the memory limit to the usage or below. A
// limit that is kept or grows is accepted without reading the usage: a cgroup may
// be at its limit.
func (d *driver) lowers(ctx context.Context, cgroup string, r Resources) error {
	if r.Memory == nil || *r.Memory < 0 || d.on.partial && d.on.of["memory"] == "" {
		return nil
	}
	have, err := d.memoryLimit(ctx, cgroup)
	if err != nil {
		return err
	}
	// In pages: the kernel shows the limit rounded down.
	if have >= 0 && *r.Memory/d.page >= have/d.page {
		return nil
	}
	return d.room(ctx, cgroup, *r.Memory)
}

// room returns ErrInUse for a memory limit at or below the usage. On v2 the kernel
// would accept such a limit and kill processes; on v1 it refuses it. A usage that
// cannot be read counts as too high. The usage may still grow between the check and
// the write.
func (d *driver) room(ctx context.Context, cgroup string, limit int64) error {
	used, err := d.memoryUsed(ctx, cgroup)
	if err != nil {
		return fmt.Errorf("%w: limit %d: the usage is not known: %w", ErrInUse, limit, err)
	}
	if used >= limit {
		return fmt.Errorf("%w: attempting to set a memory limit (%d) below current usage (%d) of %s", ErrInUse, limit, used, cgroup)
	}
	return nil
}

// onPod calls f with the pod's entry locked, and then counts the pod in its tier.
// It returns nil at once with Config.NoPodCgroups. It blocks until other calls for
// the pod have ended, or ctx ends.
func (m *Manager) onPod(ctx context.Context, operation string, pod *v1.Pod, f func(d *driver, e *podEntry, n Name, cgroup string) error) error {
	if m.cfg.NoPodCgroups {
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	n, err := m.nameOf(pod)
	if err != nil {
		return fail(err)
	}
	cgroup, err := m.literal(n)
	if err != nil {
		return fail(err)
	}
	d, err := m.start(ctx)
	if err != nil {
		return fail(err)
	}
	e, release, err := m.hold(ctx, pod.UID)
	if err != nil {
		return fail(err)
	}
	defer release()
	defer m.timed(operation)()
	// f works on a copy: an abandoned call continues to write to it.
	record := &podEntry{applied: e.applied, class: e.class}
	err = d.together(ctx, func(d *driver) error { return f(d, record, n, cgroup) })
	if errors.Is(err, ErrNoAnswer) {
		e.applied = nil // the state of the cgroup is not known
		return fail(err)
	}
	e.applied, e.class = record.applied, record.class
	if err != nil {
		return fail(err)
	}
	// Only after success: a pod without a cgroup uses nothing of its tier. Run
	// updates the tiers, so that pods do not wait for it.
	if m.sums.set(pod.UID, shareOf(pod)) {
		m.tiersOutdated.Set()
	}
	return nil
}
