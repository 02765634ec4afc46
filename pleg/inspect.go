package pleg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/cri/observed"
	"github.com/nodewright/nodewright/internal/retry"
)

// Inspections: one at a time for each pod, and Config.Inspections of them at a time
// on the whole. News that comes during an inspection leads to one more after it.
// Functions here are called with m.mu held, unless they are methods for users.

// Limits of inspections.
const (
	// slowAfter is when an inspection gives its slot to another. Those that
	// hang thereby delay others by this much, and only once.
	slowAfter = time.Second
	// A failed inspection is tried again after minRetry, doubled by each
	// further failure up to maxRetry.
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
	// A list that an inspection denied leads to another one after minRetry,
	// doubled with each further denial up to maxDenied: where there is no event
	// stream, what the list shows may have become true meanwhile.
	maxDenied = 10 * time.Second
	// lookBurst looks at a pod are made as soon as there is news of it; more
	// follow at lookEvery. It bounds what a runtime that never stops telling
	// costs, and is more than a pod's life needs.
	lookBurst = 20
	lookEvery = 200 * time.Millisecond
)

// addRecord makes the record of a pod that has none.
func (m *Manager) addRecord(uid types.UID) *record {
	r := &record{uid: uid}
	m.records[uid] = r
	return r
}

// look requests an inspection of r. It begins now, or after the inspection under way, the
// release of the last hold (see Hold), or the pace of r. dirty is set before any of these can
// delay the inspection, so that it is not lost.
func (m *Manager) look(r *record) {
	r.dirty = true
	switch {
	case r.flight != nil:
		r.flight.again = true
	case r.held == 0 && !r.paced:
		now := time.Now()
		if wait := r.pace(now); wait > 0 {
			m.later(r, wait)
			return
		}
		m.inspectAt(r, now)
	}
}

// pace returns how long the next look has to wait, and counts one that has not.
func (r *record) pace(now time.Time) time.Duration {
	if r.paid.Before(now) {
		r.paid = now
	}
	// Not counted yet: the look that waits is counted when it begins.
	if ahead := r.paid.Sub(now); ahead > (lookBurst-1)*lookEvery {
		return ahead - (lookBurst-1)*lookEvery
	}
	r.paid = r.paid.Add(lookEvery)
	return 0
}

// later has r inspected after a while, unless that is done before.
func (m *Manager) later(r *record, wait time.Duration) {
	r.stopRetry()
	r.paced = true
	r.retry = time.AfterFunc(wait, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// The timer was stopped after it had fired: somebody looked meanwhile.
		if !r.paced {
			return
		}
		r.paced = false
		// Asked again under the lock: the pod may have been seen, held or dropped
		// since.
		if r.flight == nil && r.dirty && r.held == 0 && m.records[r.uid] == r && m.ctx.Err() == nil {
			r.paid = r.paid.Add(lookEvery)
			m.inspect(r)
		}
	})
}

// Hold has news of a pod noted and not looked into until release is called:
// whoever acts on a pod makes most of its news, and one look at the end is
// enough. What takes longer than Config.HungAfter is not held any more.
// GetNewerThan answers nevertheless. release may be called more than once.
func (m *Manager) Hold(uid types.UID) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[uid]
	if r == nil {
		r = m.addRecord(uid)
		r.matched = m.listedAt // which had nothing of it
	}
	r.held++
	var once sync.Once
	free := func() { once.Do(func() { m.unhold(r) }) }
	// A holder that hangs must not hide a container that dies.
	limit := time.AfterFunc(m.cfg.HungAfter, free)
	return func() {
		limit.Stop()
		free()
	}
}

// unhold ends a hold and looks into what was noted meanwhile. A record that was
// replaced meanwhile is not touched.
func (m *Manager) unhold(r *record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.held--; r.held > 0 || r.flight != nil || m.ctx == nil || m.ctx.Err() != nil || m.records[r.uid] != r {
		return
	}
	switch {
	case r.dirty:
		m.inspect(r)
	case !r.exists():
		m.drop(r) // the hold was all there was of it
	}
}

// inspect begins an inspection of r, or queues it if too many are on their way.
func (m *Manager) inspect(r *record) *flight { return m.inspectAt(r, time.Now()) }

// inspectAt is inspect for a caller that has read the clock under the lock.
func (m *Manager) inspectAt(r *record, now time.Time) *flight {
	r.stopRetry()
	f := &flight{done: make(chan struct{}), began: now} // if it waits: until it really begins
	// The flight exists from now on, also while it waits for a slot: callers of
	// GetNewerThan wait for it and begin none of their own.
	r.flight = f
	m.beginAt(r, now)
	return f
}

// begin begins an inspection that waits, if there is a slot for it.
func (m *Manager) begin(r *record) { m.beginAt(r, time.Now()) }

func (m *Manager) beginAt(r *record, now time.Time) {
	f := r.flight
	if f.slot = m.slots.Acquire(r); f.slot == nil {
		return
	}
	f.began = now
	// What happened up to now is seen by this inspection.
	f.again = false
	r.dirty = false
	m.wg.Add(1)
	go m.fly(r, f)
}

// fly makes one inspection, on a goroutine of its own that Run waits for. It holds
// no lock while the runtime is asked.
func (m *Manager) fly(r *record, f *flight) {
	defer m.wg.Done()
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.InspectTimeout)
	defer cancel()
	// A runtime that does not even obey the deadline is not waited for.
	giveUp := time.AfterFunc(m.cfg.InspectTimeout+slowAfter, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.land(r, f, nil, fmt.Errorf("inspection of pod %s did not end: %w", r.uid, context.DeadlineExceeded))
	})
	pod, err := m.cfg.Runtime.Inspect(ctx, r.uid)
	giveUp.Stop()
	m.met.pod.Observe(time.Since(f.began).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.land(r, f, pod, err)
}

// land takes note of an inspection's result, reports it, and begins the next one if
// something happened meanwhile. It does so once: a result that comes after the
// inspection was given up is too old to be believed.
func (m *Manager) land(r *record, f *flight, pod *observed.Pod, err error) {
	if f.over {
		return
	}
	f.over = true
	if err == nil {
		pod = keepIPs(r.pod, pod)
	}
	f.pod, f.err = pod, err
	m.slots.Release(f.slot)
	r.flight = nil
	// The time of the question and not of the answer: the runtime may have looked
	// at the very beginning.
	r.at = f.began
	if r.err = err; err != nil {
		m.failed(r, f, err)
	} else {
		r.failures, r.hungSince = 0, time.Time{}
		m.noteResult(r, pod, f.again)
	}
	// After the record is up to date: those who wait read it at once.
	close(f.done)
	switch {
	case err != nil || m.ctx.Err() != nil:
		// The retry sees what happened meanwhile.
	case f.again:
		m.look(r)
	case len(r.items) == 0:
		m.drop(r)
	}
}

// drop forgets a record of which the runtime has nothing, unless it is held:
// whoever acts on the pod may be about to make something of it.
func (m *Manager) drop(r *record) {
	if r.held > 0 {
		return
	}
	if m.records[r.uid] == r {
		delete(m.records, r.uid)
	}
	r.dropped = true
}

// noteResult takes over what an inspection showed and says what is new in it.
// If another inspection follows, a Refresh is left to that one: it may have
// been asked for after this one began.
func (m *Manager) noteResult(r *record, pod *observed.Pod, again bool) {
	now := itemsOf(pod)
	// Compared with what was reported last, so that an inspection that failed in
	// between loses no change.
	changes := described(diff(r.items, now), r.pod, pod)
	if len(changes) == 0 && r.force && !again {
		changes = []Change{{Type: PodSync}}
	}
	r.force = r.force && again
	r.items, r.pod, r.hint = now, pod, nil
	// An inspection of a pod that has gone knows no name; the last one is kept for
	// logs and lists.
	if pod.Name != "" {
		r.name, r.namespace = pod.Name, pod.Namespace
	}
	if len(changes) > 0 {
		m.out.put(r, changes)
	}
}

// failed keeps what there is to tell for the inspection that succeeds: items stay
// as they were, and View has the last pod beside the error. Only the first failure
// in a row is logged.
func (m *Manager) failed(r *record, f *flight, err error) {
	if m.ctx.Err() != nil {
		return
	}
	if time.Since(f.began) >= m.cfg.HungAfter && r.hungSince.IsZero() {
		r.hungSince = f.began
	}
	if r.failures == 0 {
		m.cfg.Log.Warn("pod cannot be inspected", zap.String("uid", string(r.uid)), zap.Error(err))
	}
	r.dirty = true
	r.failures++
	// Jitter, since a runtime that restarts fails for all pods at once.
	delay := retry.Jitter(retry.Backoff{First: minRetry, Max: maxRetry}.After(r.failures), 0.5)
	r.retry = time.AfterFunc(delay, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.flight == nil && r.dirty && r.held == 0 && m.records[r.uid] == r && m.ctx.Err() == nil {
			m.inspect(r)
		}
	})
}

// gone takes note of a pod that the runtime did not list any more when asked. No
// inspection is needed: there is nothing to inspect.
func (m *Manager) gone(r *record, asked time.Time) {
	r.stopRetry()
	changes := described(diff(r.items, nil), r.pod, nil)
	if len(changes) == 0 && (r.force || r.pod == nil && r.hint != nil) {
		changes = []Change{{Type: PodSync}}
	}
	if len(changes) > 0 {
		m.out.put(r, changes)
	}
	r.items, r.pod, r.hint, r.err = nil, nil, nil, nil
	r.force, r.failures, r.hungSince = false, 0, time.Time{}
	r.matched = asked
	m.drop(r)
}

// Refresh has a pod inspected soon and an event sent for it even if nothing
// changed. It does not block. It is for changes that no state shows, such as
// resources of a running container.
func (m *Manager) Refresh(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	r := m.records[uid]
	if r == nil {
		r = m.addRecord(uid)
	}
	r.force = true
	m.look(r)
}

// View returns what is known of a pod, without waiting. The result is shared: do not
// change it.
func (m *Manager) View(uid types.UID) observed.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view(uid)
}

// view is View with m.mu held. A pod without a record was missing in the last list.
func (m *Manager) view(uid types.UID) observed.View {
	r := m.records[uid]
	if r == nil {
		r = &record{uid: uid, matched: m.listedAt}
	}
	v := observed.View{Pod: r.pod, Depth: observed.Whole, Err: r.err}
	switch {
	case r.pod != nil:
	case r.hint != nil:
		v.Pod, v.Depth = r.hint, observed.StatesOnly
	default:
		v.Pod = &observed.Pod{UID: uid, ObservedAt: r.matched}
		if r.matched.IsZero() {
			v.Depth = observed.Unseen
		}
	}
	// That there was nothing says nothing of now if a newer look has failed.
	if v.Err != nil && len(v.Pod.Sandboxes)+len(v.Pod.Containers) == 0 {
		v.Depth = observed.Unseen
	}
	return v
}

// GetNewerThan returns what the runtime shows of a pod, asked after t. It
// answers at once if it knows, and otherwise inspects the pod, after the
// inspection on its way if that began too early. A t in the future means now.
// The result is shared: do not change it. The error is the inspection's, or
// ctx's.
func (m *Manager) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*observed.Pod, error) {
	if now := time.Now(); t.After(now) {
		t = now
	}
	// Each round waits for one inspection. One that began too early is followed by
	// one that did not.
	for {
		m.mu.Lock()
		// Without Run nothing would ever answer.
		if m.ctx == nil || m.ctx.Err() != nil {
			m.mu.Unlock()
			return nil, fmt.Errorf("pleg does not run: %w", context.Canceled)
		}
		if m.fresh(uid, t) {
			v := m.view(uid)
			m.mu.Unlock()
			return v.Pod, v.Err
		}
		r := m.records[uid]
		if r == nil {
			r = m.addRecord(uid)
		}
		f := r.flight
		own := f == nil
		if own {
			f = m.inspect(r)
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-f.done:
		}
		// One that was on its way already may have begun too early. Our own
		// did not, even where the clock has not moved since t.
		if own || f.began.After(t) {
			return f.pod, f.err
		}
	}
}

// fresh reports whether what is known of a pod was asked after t, and nothing
// has been heard of it since.
func (m *Manager) fresh(uid types.UID, t time.Time) bool {
	r := m.records[uid]
	if r == nil {
		return m.listedAt.After(t)
	}
	// An error is no knowledge: the caller waits for an inspection, which may
	// succeed.
	if r.dirty || r.flight != nil || r.err != nil {
		return false
	}
	// A list that found nothing new is as good as an inspection.
	return r.at.After(t) || r.matched.After(t)
}
