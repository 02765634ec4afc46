package cgroups

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Exists returns nil if the pod's cgroup exists with all controllers, ErrNotExist
// if there is none, or a ControllerError for each controller that it lacks. With
// Config.NoPodCgroups it returns nil for every pod.
func (m *Manager) Exists(ctx context.Context, uid types.UID) error {
	d, cgroup, err := m.locate(ctx, uid)
	if err != nil || d == nil {
		return err
	}
	return d.exists(ctx, cgroup)
}

// locate searches for the pod's cgroup by UID in all tiers: callers may have no
// spec that tells the class. With Config.NoPodCgroups it returns a nil driver and
// no error; callers must check for that.
func (m *Manager) locate(ctx context.Context, uid types.UID) (*driver, string, error) {
	if m.cfg.NoPodCgroups {
		return nil, "", nil
	}
	d, err := m.start(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("find cgroup of pod %s: %w", uid, err)
	}
	// Most pods of a node are Burstable or BestEffort.
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort, v1.PodQOSGuaranteed} {
		n, err := m.tree.pod(class, uid)
		if err != nil {
			return nil, "", fmt.Errorf("find cgroup of pod %s: %w", uid, err)
		}
		cgroup, err := m.literal(n)
		if err != nil {
			return nil, "", fmt.Errorf("find cgroup of pod %s: %w", uid, err)
		}
		if d.anywhere(ctx, cgroup) {
			return d, cgroup, nil
		}
	}
	return nil, "", fmt.Errorf("cgroup of pod %s: %w", uid, ErrNotExist)
}

// Pod is a pod's cgroup found on the machine.
type Pod struct {
	UID   types.UID
	Class v1.PodQOSClass
	Path  string // below the mount points
}

// Pods returns the existing cgroups of pods below Config.Root, whether this Manager
// or an earlier process created them. It returns nil with Config.NoPodCgroups.
func (m *Manager) Pods(ctx context.Context) (map[types.UID]Pod, error) {
	if m.cfg.NoPodCgroups {
		return nil, nil
	}
	d, err := m.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("list cgroups of pods: %w", err)
	}
	return m.find(ctx, d)
}

// find lists the directories of all tiers and returns those with the name of a pod's cgroup. The
// driver is an argument because start calls find before it stores the driver.
func (m *Manager) find(ctx context.Context, d *driver) (map[types.UID]Pod, error) {
	out := map[types.UID]Pod{}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		tier, err := m.literal(m.tree.tier(class))
		if err != nil {
			return nil, err
		}
		// All hierarchies: an interrupted removal on v1 may have left a directory in
		// one of them.
		for _, dir := range d.on.dirsToo(tier) {
			children, err := d.list(ctx, dir)
			// A tier that is missing in one hierarchy has no pods there.
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list cgroups of pods: %w", err)
			}
			for _, c := range children {
				n := append(slices.Clone(m.tree.tier(class)), c)
				// Scopes and services, which containers have beside the slices, are
				// not pods.
				if d.units != nil {
					if !strings.HasSuffix(c, sliceSuffix) {
						continue
					}
					n = parseSystemd(c)
				}
				uid, of, ok := m.tree.podOf(n)
				// A systemd name contains the whole path, so that a slice could
				// claim another tier than the one in which it was found.
				if ok && of == class {
					out[uid] = Pod{uid, class, path.Join(tier, c)}
				}
			}
		}
	}
	return out, nil
}

// Sweep destroys the cgroups below Config.Root of pods for which keep returns
// false, and returns the UIDs of those pods. After a failure it continues with the
// next pod. It blocks until all are destroyed, one after the other. keep is called
// without locks held.
func (m *Manager) Sweep(ctx context.Context, keep func(types.UID) bool) ([]types.UID, error) {
	found, err := m.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var removed []types.UID
	var errs []error
	for uid := range found {
		if keep(uid) {
			continue
		}
		// One pod with a process that does not end must not keep the others' cgroups.
		if err := m.Destroy(ctx, uid); err != nil {
			errs = append(errs, err)
			continue
		}
		m.cfg.Log.Info("removed cgroup of unknown pod", zap.String("uid", string(uid)))
		removed = append(removed, uid)
	}
	slices.Sort(removed)
	return removed, errors.Join(errs...)
}
