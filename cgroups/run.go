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

// firstRetry and lastRetry are the first and the longest wait after a failed round.
// A limit may be refused until evictions have freed memory, which can take minutes.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run writes the limits that Config demands for the node's cgroups, and adjusts the
// tiers to the requests of their pods when a pod is added, changed or removed.
// Failures are retried with back-off. It blocks until ctx ends, and then returns
// nil. It may be called once. Without Run pods get their cgroups, but neither the
// node nor the tiers get limits and shares.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.NoPodCgroups {
		<-ctx.Done()
		return nil
	}
	// The first round does not wait for a pod.
	m.tiersOutdated.Set()
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
		case <-m.tiersOutdated:
		case <-timer.C:
			timed = true
		}
		if m.round(ctx, timed, &told) {
			timer.Reset(wait.Next())
		} else {
			timer.Stop()
			wait.Reset()
		}
		// Pods that are added in a burst, as after a start, share one round: kick
		// holds their requests meanwhile.
		if !retry.Sleep(ctx, m.cfg.TierDelay) {
			return nil
		}
	}
}

// round writes the values of the node and the tiers once, even if other programs changed them,
// and reports whether anything failed. timed reports that the round is a retry. *told reports
// whether the event NodeAllocatableEnforced was sent since the last failure; round updates it.
func (m *Manager) round(ctx context.Context, timed bool, told *bool) (failed bool) {
	news := false
	// A failure caused by the end of ctx must not show in Healthy.
	note := func(what string, err error) bool {
		if ctx.Err() != nil {
			return false
		}
		if news = m.trouble(what, err); news {
			if err != nil {
				m.cfg.Log.Warn("failed to enforce limits of cgroups", zap.String("what", what), zap.Error(err))
			} else {
				m.cfg.Log.Info("enforced limits of cgroups after failure", zap.String("what", what))
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
	// A failure is an event once, and again at each timed retry, as in the kubelet;
	// rounds for pods send no event.
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

// enforce writes the limits of all pods together and of the cgroups with reservations. If one of
// these fails, the others are written nevertheless. Without the cgroup of all pods nothing is
// written.
func (m *Manager) enforce(ctx context.Context, d *driver) error {
	var errs []error
	node, err := m.literal(m.tree.node)
	if err != nil {
		return err
	}
	// Another program may have removed the cgroup.
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

// enforceReserved limits one cgroup of other programs to its reservation. It does
// not create the cgroup: a missing one is a wrong configuration.
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

// updateTiers writes the sums of the pods' requests to the tiers. The sums are kept
// current pod by pod, so that the cost does not grow with the number of pods.
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
	// The kubelet's gauges are 0 unless memory is reserved.
	if !policy.reserve {
		t = totals{}
	}
	m.met.nodeMin.Set(float64(t.guaranteedMemory))
	m.met.lowSum.Set(float64(t.burstableMemory))
	return nil
}

// updateTier writes the values of one tier. A limit below the usage becomes the
// usage; the error remains until the usage falls, so that Run retries with
// back-off.
func (m *Manager) updateTier(ctx context.Context, d *driver, class v1.PodQOSClass, r Resources) error {
	n := m.tree.tier(class)
	cgroup, err := m.literal(n)
	if err != nil {
		return err
	}
	var tooMuch error
	// On v2 the kernel would accept the limit and kill processes. A removed tier
	// has nothing to lower, and is created below.
	if tooMuch = d.lowers(ctx, cgroup, r); errors.Is(tooMuch, ErrNotExist) {
		tooMuch = nil
	} else if tooMuch != nil {
		used, err := d.memoryUsed(ctx, cgroup)
		if err != nil {
			return err
		}
		// One page above the usage: a limit at the usage would be too low as soon
		// as a page is added.
		r = r.with(Resources{Memory: ptr(used/d.page*d.page + d.page)})
	}
	err = d.apply(ctx, cgroup, r)
	if errors.Is(err, ErrNotExist) { // another program removed it
		if _, err = d.create(ctx, n); err == nil {
			err = d.apply(ctx, cgroup, r)
		}
	}
	if err = errors.Join(tooMuch, err); err != nil {
		return fmt.Errorf("tier of %s pods: %w", class, err)
	}
	return nil
}
