package cgroups

import (
	"context"
	"fmt"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Destroy kills the processes of the pod's cgroup and removes the cgroup. If the cgroup does not
// exist, Destroy returns nil. If processes remain, it returns a StragglersError that names them;
// Destroy may then be called again. It blocks until the processes have ended, for a little more
// than a second plus the time of calls that hang. The caller must not start anything in the pod
// any more.
func (m *Manager) Destroy(ctx context.Context, uid types.UID) error {
	if m.cfg.NoPodCgroups {
		return nil
	}
	d, err := m.start(ctx)
	if err != nil {
		return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
	}
	e, release, err := m.hold(ctx, uid)
	if err != nil {
		return err
	}
	defer release()
	defer m.timed("destroy")()
	// After a restart the pod's tier is not known, and its spec may be gone: all
	// tiers are searched.
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	if e.applied != nil {
		classes = []v1.PodQOSClass{e.class} // created by this Manager
	}
	for _, class := range classes {
		n, err := m.tree.pod(class, uid)
		if err != nil {
			return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
		}
		cgroup, err := m.literal(n)
		if err != nil {
			return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
		}
		if !d.anywhere(ctx, cgroup) {
			continue
		}
		if left, err := d.destroy(ctx, cgroup, m.cfg.Kill); err != nil {
			// The pod stays counted in its tier: its processes may still run.
			return &StragglersError{UID: uid, Path: cgroup, Pids: left, Err: err}
		}
	}
	// Only now: hold drops an entry without users once applied is nil.
	e.applied = nil
	// Watches are ended here: the kernel reports nothing for a file that is
	// removed.
	m.endWatches(uid)
	if m.sums.remove(uid) {
		m.tiersOutdated.Set()
	}
	return nil
}

// anywhere reports whether the cgroup exists in at least one hierarchy, since an interrupted
// removal on v1 may have left some of its directories. A directory that does not answer counts as
// existing, since the cgroup would otherwise never be removed.
func (d *driver) anywhere(ctx context.Context, cgroup string) bool {
	return slices.ContainsFunc(d.on.dirsToo(cgroup), func(dir string) bool {
		_, err := d.read(ctx, path.Join(dir, "cgroup.procs"))
		return !gone(err)
	})
}
