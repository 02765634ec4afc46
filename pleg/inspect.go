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

// A pod has at most one inspection at a time. All pods together have at most maxInspections.
// An event or list during an inspection leads to another inspection after it. Functions
// here are called with m.mu held, unless they are exported.

// Limits of inspections.
const (
	// slowAfter is the time after which an inspection gives up its slot. Hung inspections delay
	// others by at most this time, once.
	slowAfter = time.Second
	// A failed inspection is tried again after minRetry, doubled by each
	// further failure up to maxRetry.
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
	// If the inspection after a list contradicts the list, the next equal list leads to an
	// inspection only after minRetry. This time doubles with each contradiction, up to maxDenied.
	// Inspections do not stop: without an event stream, a list may be the first to show a change.
	maxDenied = 10 * time.Second
	// lookBurst inspections of a pod are made without delay; further ones follow at lookEvery.
	// This limits the cost of a runtime that reports changes without end.
	lookBurst = 20
	lookEvery = 200 * time.Millisecond
)

// addRecord creates the record of a pod.
func (m *Manager) addRecord(uid types.UID) *record {
	r := &record{uid: uid}
	m.records[uid] = r
	return r
}

// look requests an inspection of r. The inspection begins now, or later if another inspection of r
// runs, a hold delays it (see Hold), or r exceeds its rate (see pace). dirty is set first, so that
// a delayed inspection is not lost.
func (m *Manager) look(r *record) {
	r.dirty = true
	if r.flight != nil || r.held > 0 || r.paced {
		return
	}
	now := time.Now()
	if wait := r.pace(now); wait > 0 {
		m.later(r, wait)
		return
	}
	m.inspectAt(r, now)
}

// pace returns the delay of the next inspection. If it is 0, the inspection is counted.
func (r *record) pace(now time.Time) time.Duration {
	if r.paid.Before(now) {
		r.paid = now
	}
	// A delayed inspection is counted when it begins.
	if ahead := r.paid.Sub(now); ahead > (lookBurst-1)*lookEvery {
		return ahead - (lookBurst-1)*lookEvery
	}
	r.paid = r.paid.Add(lookEvery)
	return 0
}

// later inspects r after wait, unless it is inspected before.
func (m *Manager) later(r *record, wait time.Duration) {
	r.stopRetry()
	r.paced = true
	r.retry = time.AfterFunc(wait, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// The timer was stopped after it had fired: the pod has been inspected since.
		if !r.paced {
			return
		}
		r.paced = false
		// Checked again with the lock held: the pod may have been inspected, held or
		// dropped since.
		if r.flight == nil && r.dirty && r.held == 0 && m.records[r.uid] == r && m.ctx.Err() == nil {
			r.paid = r.paid.Add(lookEvery)
			m.inspect(r)
		}
	})
}

// Hold postpones inspections of a pod until release is called, at most for five seconds. A pod
// worker calls Hold while it changes its pod: most events of that time come from these changes,
// and one inspection at the end is enough. GetNewerThan still inspects. release may be called
// more than once.
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
	limit := time.AfterFunc(hungAfter, free)
	return func() {
		limit.Stop()
		free()
	}
}

// unhold ends a hold, and inspects the pod if events came meanwhile. It ignores a record that
// was replaced.
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

// inspect begins an inspection of r, or queues it if too many are under way.
func (m *Manager) inspect(r *record) *flight { return m.inspectAt(r, time.Now()) }

// inspectAt does the work of inspect with the time now.
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
	r.dirty = false // this inspection sees everything up to now
	m.wg.Add(1)
	go m.fly(r, f)
}

// fly makes one inspection in its own goroutine, for which Run waits. It holds no lock during
// the call of the runtime.
func (m *Manager) fly(r *record, f *flight) {
	defer m.wg.Done()
	ctx, cancel := context.WithTimeout(m.ctx, inspectTimeout)
	defer cancel()
	// Do not wait for a call that ignores its deadline.
	giveUp := time.AfterFunc(inspectTimeout+slowAfter, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.finishInspection(r, f, nil, fmt.Errorf("inspection of pod %s did not end: %w", r.uid, context.DeadlineExceeded))
	})
	pod, err := m.cfg.Runtime.Inspect(ctx, r.uid)
	giveUp.Stop()
	m.met.pod.Observe(time.Since(f.began).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finishInspection(r, f, pod, err)
}

// finishInspection stores the result of an inspection, reports changes, and begins the next
// inspection if an event or a list asked for one meanwhile. It ignores the result of an inspection
// that was given up.
func (m *Manager) finishInspection(r *record, f *flight, pod *observed.Pod, err error) {
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
	// The time of the request, not of the answer: the state may be as old as the request.
	r.at = f.began
	if r.err = err; err != nil {
		m.failed(r, f, err)
	} else {
		r.failures, r.hungSince = 0, time.Time{}
		m.noteResult(r, pod)
	}
	// After the record is up to date: those who wait read it at once.
	close(f.done)
	switch {
	case err != nil || m.ctx.Err() != nil:
		// The retry sees what happened meanwhile.
	case r.dirty:
		m.look(r)
	case len(r.items) == 0:
		m.drop(r)
	}
}

// drop removes the record of a pod that the runtime does not have, unless it is held: the holder
// may be about to create its sandbox.
func (m *Manager) drop(r *record) {
	if r.held > 0 {
		return
	}
	if m.records[r.uid] == r {
		delete(m.records, r.uid)
	}
	r.dropped = true
}

// noteResult stores the result of an inspection and reports the changes.
func (m *Manager) noteResult(r *record, pod *observed.Pod) {
	now := itemsOf(pod)
	// Compared with what was reported last, so that an inspection that failed in
	// between loses no change.
	changes := described(diff(r.items, now), r.pod, pod)
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

// failed records a failed inspection. The last items and pod stay, so the next successful
// inspection reports all changes since them. Only the first failure in a row is logged.
func (m *Manager) failed(r *record, f *flight, err error) {
	if m.ctx.Err() != nil {
		return
	}
	if time.Since(f.began) >= hungAfter && r.hungSince.IsZero() {
		r.hungSince = f.began
	}
	if r.failures == 0 {
		m.cfg.Log.Warn("failed to inspect pod", zap.String("uid", string(r.uid)), zap.Error(err))
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

// gone records that a list does not have a pod any more. The pod is not inspected. asked is when
// the list began.
func (m *Manager) gone(r *record, asked time.Time) {
	r.stopRetry()
	changes := described(diff(r.items, nil), r.pod, nil)
	if len(changes) == 0 && r.pod == nil && r.hint != nil {
		changes = []Change{{Type: PodSync}}
	}
	if len(changes) > 0 {
		m.out.put(r, changes)
	}
	r.items, r.pod, r.hint, r.err = nil, nil, nil, nil
	r.failures, r.hungSince = 0, time.Time{}
	r.matched = asked
	m.drop(r)
}

// Refresh inspects a pod soon, and sends an event if it has changed. It does not block. Call it
// after an action on the pod: without an event stream the change would wait for the next list.
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
	m.look(r)
}

// View returns the last known state of a pod, without waiting. The result is shared: do not
// change it.
func (m *Manager) View(uid types.UID) observed.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view(uid)
}

// view does the work of View. The caller holds m.mu. A pod without a record was not in the last
// list.
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
	// An empty state counts as unknown if a later inspection failed.
	if v.Err != nil && len(v.Pod.Sandboxes)+len(v.Pod.Containers) == 0 {
		v.Depth = observed.Unseen
	}
	return v
}

// GetNewerThan returns the state of a pod, read from the runtime after t. It returns at once if
// the cached state is new enough. Otherwise it inspects the pod, or waits for an inspection that
// began after t. If t is in the future, the current time is used. The result is shared: do not
// change it. The error is that of the inspection or of ctx.
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

// fresh reports whether the cached state of a pod was read after t, with no event since.
func (m *Manager) fresh(uid types.UID, t time.Time) bool {
	r := m.records[uid]
	if r == nil {
		return m.listedAt.After(t)
	}
	// After an error the caller waits for a new inspection, which may succeed.
	if r.dirty || r.flight != nil || r.err != nil {
		return false
	}
	// A list that matched the record counts like an inspection.
	return r.at.After(t) || r.matched.After(t)
}
