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

// Ensure makes the pod's cgroup and gives it what the pod is to have. One that
// is there already gets back what it had been given, if that was changed; what
// the pod is to have anew of cpu and memory is for Raise and Lower, in step
// with its containers, or for Update. It is meant to be called at each sync of
// the pod, and then costs little more than a read of each file.
func (m *Manager) Ensure(ctx context.Context, pod *v1.Pod) error {
	return m.onPod(ctx, "create", pod, func(d *driver, e *podEntry, n Name, cgroup string) error {
		made, err := d.create(ctx, n)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		e.class = podmeta.QOS(pod)
		if made {
			m.poke() // what is above it may be new as well
			// Whatever was recorded was that of a cgroup which somebody removed.
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
		// An agent that has restarted does not know what was applied, and reads it.
		default:
			have, err := d.level(ctx, cgroup)
			if err != nil {
				return err
			}
			give, all = d.on.version.adopted(have, want)
		}
		// The rest of the values is written all the same: a share of CPU must not
		// wait for memory to be freed.
		if err := d.lowers(ctx, cgroup, give); err != nil {
			m.cfg.Log.Warn("memory limit waits", zap.String("cgroup", cgroup), zap.Error(err))
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

// Update gives the pod's cgroup all that the pod is to have, at once. It
// refuses a memory limit at or below what is in use. That refusal is an error
// of ErrInUse, and nothing is written then.
func (m *Manager) Update(ctx context.Context, pod *v1.Pod) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
		have, err := d.level(ctx, cgroup)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		// Limits that the pod has not are set to none, instead of being left as they
		// are.
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			want = want.with(want.part(part{name, true}))
		}
		to := d.on.version.levelOf(want)
		if to.compare(have, part{v1.ResourceMemory, true}) < 0 {
			if err := d.room(ctx, cgroup, to.memory); err != nil {
				return err
			}
		}
		// Only if it differs: where memory is not reserved, other programs' values
		// would be cleared without need.
		if to.min+to.low != have.min+have.low {
			want = want.with(want.part(part{v1.ResourceMemory, false}))
		}
		// Nil while the write goes on: if it fails in the middle, nobody knows what
		// the cgroup has.
		e.applied = nil
		if err := d.apply(ctx, cgroup, want); err != nil {
			return err
		}
		e.applied = &want
		return nil
	})
}

// Raise raises what the pod's cgroup has less of a resource, cpu or memory,
// than the pod is to have: the limit, then the request. It is to be called
// before the containers are given more: the kernel does not let children use
// more than their parent.
func (m *Manager) Raise(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsUp)
}

// Lower lowers what it has more of: the request, then the limit. It refuses a
// memory limit at or below what is in use. It is to be called after the
// containers were given less.
func (m *Manager) Lower(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsDown)
}

// resize writes, part by part, those values of a resource that parts names. It
// stops at the first failure; what was written before stays and is recorded.
func (m *Manager) resize(ctx context.Context, pod *v1.Pod, resource v1.ResourceName, parts func(have, want level, name v1.ResourceName) []part) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
		// The kernel's values decide on the direction, not the ones recorded: an
		// earlier resize may have been cut short.
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
			// Each part is recorded on its own, so that Ensure does not undo half of a
			// resize. With no record at all there is nothing to add to.
			if e.applied != nil {
				e.applied = ptr(e.applied.with(want.part(p)))
			}
		}
		return nil
	})
}

// lowers returns an error of ErrInUse for resources whose memory limit is lower
// than the present one and at or below what is in use. A limit that stays or
// grows is fine without a look at the usage: a cgroup may well be at its limit.
func (d *driver) lowers(ctx context.Context, cgroup string, r Resources) error {
	if r.Memory == nil || *r.Memory < 0 {
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

// room refuses a memory limit at or below what is in use: it would be the end
// of what runs there. On v2 the kernel takes such a limit and kills; on v1 it
// refuses it. Where the usage cannot be read, it is taken for too high. Between
// the look and the write usage may still grow.
func (d *driver) room(ctx context.Context, cgroup string, limit int64) error {
	used, err := d.memoryUsed(ctx, cgroup)
	if err != nil {
		return fmt.Errorf("%w: limit %d: how much is not known: %w", ErrInUse, limit, err)
	}
	if used >= limit {
		return fmt.Errorf("%w: attempting to set a memory limit (%d) below current usage (%d) of %s", ErrInUse, limit, used, cgroup)
	}
	return nil
}

// onPod calls f in the pod's turn, and counts the pod for its tier. It returns
// nil at once with Config.NoPodCgroups. It blocks while another call for the
// pod goes on, until ctx ends.
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
	// On a record of its own: a call that does not come back leaves f in the middle.
	record := &podEntry{applied: e.applied, class: e.class}
	err = d.together(ctx, func(d *driver) error { return f(d, record, n, cgroup) })
	if errors.Is(err, ErrNoAnswer) {
		e.applied = nil // it may have been given anything
		return fail(err)
	}
	e.applied, e.class = record.applied, record.class
	if err != nil {
		return fail(err)
	}
	// Only after success: a pod whose cgroup is not there takes nothing of its
	// tier. Updates of the tiers are left to Run, so that no pod waits for them.
	if m.sums.set(pod.UID, shareOf(pod)) {
		m.poke()
	}
	return nil
}
