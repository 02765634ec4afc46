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
// not there is destroyed. A StragglersError says which processes remain. It is
// safe to repeat, and blocks until the processes have ended, for a little more
// than a second at most beside calls that hang. The caller sees to it that
// nothing starts in the pod any more.
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
	// After a restart nobody knows in which tier the pod was made, and its spec
	// may be gone: all tiers are looked at.
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
			// The pod stays counted for its tier: what is left of it may still run.
			m.met.stragglers.Inc()
			return &StragglersError{UID: uid, Path: cgroup, Pids: left, Err: err}
		}
	}
	// Only now: hold drops the entry once nobody uses it and nothing is applied.
	e.applied = nil
	// Watches may not hear of the removal from the kernel, which reports nothing
	// for a file that is gone.
	m.endWatches(uid)
	if m.sums.remove(uid) {
		m.poke()
	}
	return nil
}

// anywhere reports whether there is any directory of a cgroup. One that does
// not answer counts as there: to take it for gone would leave it behind for
// good. One directory of several is enough, so that what an interrupted removal
// left on v1 is removed as well.
func (d *driver) anywhere(ctx context.Context, cgroup string) bool {
	return slices.ContainsFunc(d.on.dirsToo(cgroup), func(dir string) bool {
		_, err := d.read(ctx, path.Join(dir, "cgroup.procs"))
		return !gone(err)
	})
}

// ReduceCPU leaves the pod the least share of CPU: its containers have ended,
// and its cgroup stays only for what it is still charged with. Memory of its
// emptyDir volumes on tmpfs, for example, would be charged to the parent if the
// cgroup went first; the kubelet keeps it for that reason too.
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
	least := Resources{CPUShares: ptr(uint64(minShares))}
	if e.applied != nil {
		// Otherwise Ensure would take the reduction for a change by others, and undo
		// it.
		e.applied = ptr(e.applied.with(least))
	}
	return d.apply(ctx, cgroup, least)
}
