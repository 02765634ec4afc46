package cgroups

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/podmeta"
)

func (m *Manager) nameOf(pod *v1.Pod) (Name, error) {
	return m.tree.pod(podmeta.QOS(pod), pod.UID)
}

// Ensure makes the pod's cgroup and gives it what the pod is to have. One that
// is there already gets back what it had been given, if that was changed; what
// the pod is to have anew of cpu and memory is for Raise and Lower, in step
// with its containers, or for Update.
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
		default:
			have, err := d.level(ctx, cgroup)
			if err != nil {
				return err
			}
			give, all = d.on.version.adopted(have, want)
		}
		if err := d.lowers(ctx, cgroup, give); err != nil {
			m.cfg.Log.Warn("memory limit waits", zap.String("cgroup", cgroup), zap.Error(err))
			give.Memory, give.MemorySwap, all = nil, nil, false
		}
		err = d.apply(ctx, cgroup, give)
		if e.applied = nil; err == nil && all {
			e.applied = &give
		}
		return err
	})
}

// Update gives the pod's cgroup all that the pod is to have, at once. It
// refuses a memory limit at or below what is in use.
func (m *Manager) Update(ctx context.Context, pod *v1.Pod) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
		have, err := d.level(ctx, cgroup)
		if err != nil {
			return err
		}
		want := OfPod(pod, m.cfg.PodOptions)
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			want = want.with(want.part(part{name, true}))
		}
		to := d.on.version.levelOf(want)
		if to.compare(have, part{v1.ResourceMemory, true}) < 0 {
			if err := d.room(ctx, cgroup, to.memory); err != nil {
				return err
			}
		}
		if to.min+to.low != have.min+have.low {
			want = want.with(want.part(part{v1.ResourceMemory, false}))
		}
		e.applied = nil
		if err := d.apply(ctx, cgroup, want); err != nil {
			return err
		}
		e.applied = &want
		return nil
	})
}

// Raise raises what the pod's cgroup has less of a resource, cpu or memory,
// than the pod is to have: the limit, then the request.
func (m *Manager) Raise(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsUp)
}

// Lower lowers what it has more of: the request, then the limit. It refuses a
// memory limit at or below what is in use.
func (m *Manager) Lower(ctx context.Context, pod *v1.Pod, resource v1.ResourceName) error {
	return m.resize(ctx, pod, resource, partsDown)
}

func (m *Manager) resize(ctx context.Context, pod *v1.Pod, resource v1.ResourceName, parts func(have, want level, name v1.ResourceName) []part) error {
	return m.onPod(ctx, "update", pod, func(d *driver, e *podEntry, _ Name, cgroup string) error {
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
			if e.applied != nil {
				e.applied = ptr(e.applied.with(want.part(p)))
			}
		}
		return nil
	})
}

// lowers refuses resources with less memory than is in use.
func (d *driver) lowers(ctx context.Context, cgroup string, r Resources) error {
	if r.Memory == nil || *r.Memory < 0 {
		return nil
	}
	have, err := d.memoryLimit(ctx, cgroup)
	if err != nil {
		return err
	}
	if have >= 0 && *r.Memory/d.page >= have/d.page {
		return nil
	}
	return d.room(ctx, cgroup, *r.Memory)
}

// room refuses a memory limit at or below what is in use: it would be the end
// of what runs there.
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

// onPod calls f in the pod's turn, and counts the pod for its tier.
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
	if err := f(d, e, n, cgroup); err != nil {
		return fail(err)
	}
	if m.sums.set(pod.UID, shareOf(pod)) {
		m.poke()
	}
	return nil
}
