package dra

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/wake"
)

// Pauses between attempts to unprepare the claims of a pod that is gone.
const (
	// firstRetry is the pause after the first failure. It doubles up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute // the kubelet's period
)

// Unprepare calls drivers to unprepare the claims of a pod, except those that other pods use.
// Call it when all of the pod's containers have ended, and again after an error: until it
// succeeds, the pod counts as a user of its claims. It blocks until the drivers have answered or
// ctx ends. Errors are, or wrap, [*NotYetError], [*GoneError], [*DriverError] and
// [ErrNotRunning]. For a pod without claims it returns nil. It also returns nil if the drivers
// have succeeded and only the record cannot be removed.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	m.rescue(uid)
	return m.release(ctx, uid)
}

// release does the work of Unprepare, also for reapers. It takes the pod's turn. It removes all
// claims of the pod or returns an error.
func (m *Manager) release(ctx context.Context, uid types.UID) error {
	leave, err := m.enter(ctx, uid)
	if err != nil {
		return fmt.Errorf("wait for another call for the pod's claims: %w", err)
	}
	defer leave()
	m.mu.Lock()
	// From here on, no damaged record is rebuilt with this pod as a user.
	delete(m.alive, uid)
	m.unawait(uid)
	claims := m.of(uid)
	m.mu.Unlock()
	if len(claims) == 0 {
		return nil
	}
	began := time.Now()
	for {
		// Other pods may start and end meanwhile; whichever is the last user unprepares the
		// claim.
		last := m.leave(uid, claims)
		if len(last) == 0 {
			break
		}
		err = m.each(last, func(driver string, list []*claim) error {
			return m.unprepareBy(ctx, driver, uid, list)
		})
		if err != nil {
			// Claims whose drivers have succeeded are released, even if other drivers failed.
			m.leave(uid, claims)
			break
		}
	}
	if serr := m.save(claims...); serr != nil && err == nil {
		// After a restart, Retain finds that the pod is gone.
		m.cfg.Log.Warn("failed to update record of claim", zap.Error(serr))
	}
	m.met.operation(opUnprepare, began, err)
	return err
}

// leave removes the pod's use of the claims. Claims that no other pod uses and that drivers have to
// unprepare are kept and returned. The check and the removal are one step under the lock, so that
// of two pods that end at once, exactly one is the last.
func (m *Manager) leave(uid types.UID, claims []*claim) []*claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	var last []*claim
	for _, c := range claims {
		if c.alone(uid) && !c.idle() {
			last = append(last, c)
		} else {
			m.unrefer(c, uid)
		}
	}
	return last
}

// unprepareBy calls one driver to unprepare claims, as long as the pod is their only user.
func (m *Manager) unprepareBy(ctx context.Context, driver string, uid types.UID, claims []*claim) error {
	seen := ops{}
	for {
		m.mu.Lock()
		var todo []*claim
		var wait *op
		for _, c := range claims {
			switch p := c.parts[driver]; {
			// Another pod uses the claim now, so it stays prepared.
			case !c.alone(uid):
			case p.op != nil:
				wait = p.op
			case p.called:
				todo = append(todo, c)
			}
		}
		err := seen.errors(todo)
		if err == nil && len(todo) > 0 {
			wait, err = m.call(driver, uid, todo, false)
		}
		m.mu.Unlock()
		if err != nil || wait == nil {
			return err
		}
		if err := wait.wait(ctx, driver); err != nil {
			return err
		}
		if !wait.prepare {
			seen[wait] = true
		}
	}
}

// Retain unprepares, in the background, the claims of pods for which keep returns false. Call it
// when all pods are known, and repeat it from time to time. keep is called without locks, for
// pods that have prepared claims. Before Run and after its end, Retain does nothing.
func (m *Manager) Retain(keep func(types.UID) bool) {
	m.mu.Lock()
	uids := make([]types.UID, 0, len(m.byPod))
	for uid := range m.byPod {
		uids = append(uids, uid)
	}
	m.mu.Unlock()
	for _, uid := range uids {
		if keep(uid) {
			m.rescue(uid)
		} else {
			m.reap(uid)
		}
	}
}

// reaper unprepares the claims of one pod that does not exist any more.
type reaper struct {
	cancel context.CancelFunc
	// wake ends a pause, because a driver that the reaper waits for is connected.
	wake wake.Signal
}

// rescue ends the reaper of a pod that exists after all.
func (m *Manager) rescue(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.reaping[uid]; r != nil {
		r.cancel()
		delete(m.reaping, uid)
	}
}

// reap starts a reaper for a pod that does not exist any more. There is at most one reaper per pod.
func (m *Manager) reap(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reaping[uid] != nil {
		return
	}
	r := &reaper{wake: wake.New()}
	// As for plugins, the context is created once start has succeeded.
	ready := make(chan context.Context, 1)
	if m.start(func(ctx context.Context) { m.attempt(<-ready, r, uid) }) != nil {
		return // Run has not begun, or has ended
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(m.ctx)
	ready <- ctx
	m.reaping[uid] = r
}

// attempt runs a reaper. It ends when the pod has no claims left, when the pod is rescued, or
// when Run ends.
func (m *Manager) attempt(ctx context.Context, r *reaper, uid types.UID) {
	defer r.cancel()
	said := ""
	pause := retry.Backoff{First: firstRetry, Max: lastRetry}
	for {
		err := m.release(ctx, uid)
		if ctx.Err() != nil {
			return // rescued, or Run has ended
		}
		if err == nil {
			m.cfg.Log.Info("unprepared claims of a pod that is gone", zap.String("uid", string(uid)))
			m.mu.Lock()
			// After a rescue, another Retain may have started a newer reaper.
			if m.reaping[uid] == r {
				delete(m.reaping, uid)
			}
			m.mu.Unlock()
			return
		}
		// A repeated failure is logged only if its text changes.
		if now := err.Error(); now != said {
			m.cfg.Log.Warn("failed to unprepare claims of a pod that is gone; trying again", zap.String("uid", string(uid)), zap.Error(err))
			said = now
		}
		t := time.NewTimer(pause.Next())
		select {
		case <-ctx.Done():
			t.Stop()
			return // rescued, or Run has ended
		case <-r.wake:
		case <-t.C:
		}
		t.Stop()
	}
}
