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

// How long to wait before what failed is tried again: the first time, and at
// most.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run holds pods and what is reserved to what Config says, and the tiers to
// what their pods request: when a pod came, changed or went, not by the clock.
// What fails is tried again with back-off. It returns nil when ctx has ended.
// It may be called once.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.NoPodCgroups {
		<-ctx.Done()
		return nil
	}
	m.poke()
	wait := retry.Backoff{First: firstRetry, Max: lastRetry}
	told := false
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
	if err != nil {
		return false
	}
	err = m.enforce(ctx, d)
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
	return note("tiers", m.updateTiers(ctx, d)) || failed
}

// enforce holds all pods to what is left for them, and others to what is
// reserved for them.
func (m *Manager) enforce(ctx context.Context, d *driver) error {
	var errs []error
	node, err := m.literal(m.tree.node)
	if err != nil {
		return err
	}
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

func (m *Manager) enforceReserved(ctx context.Context, d *driver, r reservedCgroup) error {
	if r.err != nil {
		return r.err
	}
	cgroup, err := m.literal(ParseCgroupfs(r.path))
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

// updateTiers gives the tiers what their pods request together.
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
	if !policy.reserve {
		t = totals{}
	}
	m.met.nodeMin.Set(float64(t.guaranteedMemory))
	m.met.lowSum.Set(float64(t.burstableMemory))
	return nil
}

// updateTier gives one tier what it is to have. A limit below what is in use
// becomes as much as is in use; the rest comes when there is less.
func (m *Manager) updateTier(ctx context.Context, d *driver, class v1.PodQOSClass, r Resources) error {
	n := m.tree.tier(class)
	cgroup, err := m.literal(n)
	if err != nil {
		return err
	}
	var tooMuch error
	if tooMuch = d.lowers(ctx, cgroup, r); tooMuch != nil {
		used, err := d.memoryUsed(ctx, cgroup)
		if err != nil {
			return err
		}
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
