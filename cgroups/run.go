package cgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/internal/retry"
)

// The first wait before a failed round is tried again, and the longest. The
// limit may be refused until evictions have freed memory, which can take
// minutes.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run holds pods and what is reserved to what Config says, and the tiers to
// what their pods request: when a pod came, changed or went, not by the clock.
// What fails is tried again with back-off. It blocks until ctx has ended, and
// then returns nil. It may be called once. Without it pods get their cgroups,
// but neither the node nor the tiers get limits and shares.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.NoPodCgroups {
		<-ctx.Done()
		return nil
	}
	// The first round comes without a pod.
	m.poke()
	wait := retry.Backoff{First: firstRetry, Max: lastRetry}
	told := false
	// The timer runs only while something has failed.
	timer := time.NewTimer(lastRetry)
	timer.Stop()
	defer timer.Stop()
	for {
		timed := false
		select {
		case <-ctx.Done():
			return nil
		case <-m.kick:
		case <-timer.C:
			timed = true
		}
		if m.round(ctx, timed, &told) {
			timer.Reset(wait.Next())
		} else {
			timer.Stop()
			wait.Reset()
		}
		// Pods that come in a burst, as after a start, are taken together: their
		// requests wait in kick meanwhile.
		if !retry.Sleep(ctx, m.cfg.TierDelay) {
			return nil
		}
	}
}

// round does what there is to do, which mends what others changed as well. It
// reports whether any of it failed. timed says that something had failed before,
// and told that the node's limits were told of as enforced.
func (m *Manager) round(ctx context.Context, timed bool, told *bool) (failed bool) {
	news := false
	// A failure because of the end of ctx is none, and must not show in Healthy.
	note := func(what string, err error) bool {
		if ctx.Err() != nil {
			return false
		}
		if news = m.trouble(what, err); news {
			if err != nil {
				m.cfg.Log.Warn("cgroups are not as they should be", zap.String("what", what), zap.Error(err))
			} else {
				m.cfg.Log.Info("cgroups are as they should be again", zap.String("what", what))
			}
		}
		return err != nil
	}
	d, err := m.start(ctx)
	if note("start", err) {
		return true
	}
	// Only reached if ctx has ended: every other error was noted.
	if err != nil {
		return false
	}
	// A failure is an event once, and again at each timed retry, as the kubelet
	// sends it; rounds that pods caused in between are silent.
	err = d.together(ctx, func(d *driver) error { return m.enforce(ctx, d) })
	switch failed = note("enforce", err); {
	case failed && (news || timed):
		m.cfg.Event(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement",
			"Failed to update Node Allocatable Limits "+m.Root()+": "+err.Error())
		*told = false
	case err == nil && !*told:
		*told = true
		if !slices.Contains(m.cfg.Enforce, EnforceNone) {
			m.cfg.Event(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated limits on "+m.Root())
		}
	}
	// Tiers are updated even if the limits of the node failed: they do not depend
	// on each other.
	return note("tiers", d.together(ctx, func(d *driver) error { return m.updateTiers(ctx, d) })) || failed
}

// enforce holds all pods to what is left for them, and others to what is
// reserved for them. Once the cgroup of all pods is there, one failure keeps
// none of the others back.
func (m *Manager) enforce(ctx context.Context, d *driver) error {
	var errs []error
	node, err := m.literal(m.tree.node)
	if err != nil {
		return err
	}
	// Somebody may have removed the cgroup since the start.
	if _, err := d.create(ctx, m.tree.node); err != nil {
		return err
	}
	if err := d.apply(ctx, node, m.cfg.nodeResources()); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", EnforcePods, err))
	}
	for _, r := range m.cfg.reservedCgroups() {
		errs = append(errs, m.enforceReserved(ctx, d, r))
	}
	return errors.Join(errs...)
}

// enforceReserved holds one cgroup of others to its reservation. The cgroup is
// never made: a missing one means that the configuration names the wrong one.
func (m *Manager) enforceReserved(ctx context.Context, d *driver, r reservedCgroup) error {
	if r.err != nil {
		return r.err
	}
	cgroup, err := m.literal(parseCgroupfs(r.path))
	if err == nil {
		err = d.exists(ctx, cgroup)
	}
	if err == nil {
		err = d.apply(ctx, cgroup, r.resources)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.key, err)
	}
	return nil
}

// updateTiers gives the tiers what their pods request together. It sums nothing
// up itself: sums is kept current pod by pod, so that the cost does not grow
// with the pods.
func (m *Manager) updateTiers(ctx context.Context, d *driver) error {
	t := m.sums.totals()
	policy := tierPolicy{reserve: m.cfg.ReserveMemory, percent: m.percent}
	if list := m.cfg.Node.ForPods(); m.percent >= 0 {
		policy.allocatable = list.Memory().Value()
	}
	var errs []error
	for class, r := range policy.resources(t) {
		errs = append(errs, m.updateTier(ctx, d, class, r))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The kubelet's gauges are 0 while nothing is reserved.
	if !policy.reserve {
		t = totals{}
	}
	m.met.nodeMin.Set(float64(t.guaranteedMemory))
	m.met.lowSum.Set(float64(t.burstableMemory))
	return nil
}

// updateTier gives one tier what it is to have. A limit below what is in use
// becomes as much as is in use; the rest comes when there is less. The error
// remains for that long, so that Run tries again with back-off.
func (m *Manager) updateTier(ctx context.Context, d *driver, class v1.PodQOSClass, r Resources) error {
	n := m.tree.tier(class)
	cgroup, err := m.literal(n)
	if err != nil {
		return err
	}
	var tooMuch error
	// On v2 the kernel would take the limit and kill until it is kept.
	// A tier that somebody removed has nothing to lower, and is made below.
	if tooMuch = d.lowers(ctx, cgroup, r); errors.Is(tooMuch, ErrNotExist) {
		tooMuch = nil
	} else if tooMuch != nil {
		used, err := d.memoryUsed(ctx, cgroup)
		if err != nil {
			return err
		}
		// One page above the usage, rounded: a limit at the usage would be too low as
		// soon as a page is added.
		r = r.with(Resources{Memory: ptr(used/d.page*d.page + d.page)})
	}
	err = d.apply(ctx, cgroup, r)
	if errors.Is(err, ErrNotExist) { // somebody removed it
		if _, err = d.create(ctx, n); err == nil {
			err = d.apply(ctx, cgroup, r)
		}
	}
	if err = errors.Join(tooMuch, err); err != nil {
		return fmt.Errorf("tier of %s pods: %w", class, err)
	}
	return nil
}
