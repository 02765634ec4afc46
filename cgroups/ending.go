package cgroups

import (
	"context"
	"fmt"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Destroy kills what is left in the pod's cgroup and removes it. One that is
// not there is destroyed. A StragglersError says which processes remain.
func (m *Manager) Destroy(ctx context.Context, uid types.UID) error {
	if m.cfg.NoPodCgroups {
		return nil
	}
	d, err := m.start(ctx)
	if err != nil {
		return fmt.Errorf("cgroup of pod %s: %w", uid, err)
	}
	e, release, err := m.hold(ctx, uid)
	if err != nil {
		return err
	}
	defer release()
	defer m.timed("destroy")()
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	if e.applied != nil {
		classes = []v1.PodQOSClass{e.class} // it was made here
	}
	for _, class := range classes {
		n, err := m.tree.pod(class, uid)
		if err != nil {
			return fmt.Errorf("cgroup of pod %s: %w", uid, err)
		}
		cgroup, err := m.literal(n)
		if err != nil {
			return fmt.Errorf("cgroup of pod %s: %w", uid, err)
		}
		if !d.anywhere(ctx, cgroup) {
			continue
		}
		if left, err := d.destroy(ctx, cgroup, m.cfg.Kill); err != nil {
			m.met.stragglers.Inc()
			return &StragglersError{UID: uid, Path: cgroup, Pids: left, Err: err}
		}
	}
	e.applied = nil
	m.endWatches(uid)
	if m.sums.remove(uid) {
		m.poke()
	}
	return nil
}

// anywhere reports whether there is any directory of a cgroup, or one that does
// not answer.
func (d *driver) anywhere(ctx context.Context, cgroup string) bool {
	return slices.ContainsFunc(d.on.dirsToo(cgroup), func(dir string) bool {
		_, err := d.read(ctx, path.Join(dir, "cgroup.procs"))
		return !gone(err)
	})
}

// ReduceCPU leaves the pod the least share of CPU: its containers have ended,
// and its cgroup stays only for what it is still charged with.
func (m *Manager) ReduceCPU(ctx context.Context, uid types.UID) error {
	d, cgroup, err := m.locate(ctx, uid)
	if err != nil || d == nil {
		return err
	}
	e, release, err := m.hold(ctx, uid)
	if err != nil {
		return err
	}
	defer release()
	defer m.timed("update")()
	least := Resources{CPUShares: ptr(uint64(MinShares))}
	if e.applied != nil {
		e.applied = ptr(e.applied.with(least))
	}
	return d.apply(ctx, cgroup, least)
}
