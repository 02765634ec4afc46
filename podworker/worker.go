package podworker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.uber.org/zap"
)

// over tells that Run ends.
func (m *Manager) over() bool { return m.stopped || m.ctx.Err() != nil }

// wake starts a goroutine for a record that has something to do and none yet.
func (m *Manager) wake(r *record) {
	if r.running || !r.pending.ok || m.ctx == nil || m.stopped {
		return
	}
	if !m.mayBegin(r) {
		return
	}
	r.running = true
	m.wg.Add(1)
	go m.work(r)
}

// mayBegin tells whether a record's next call can be made now. If not, it has
// been put where it will be woken.
func (m *Manager) mayBegin(r *record) bool {
	if r.kind() != Sync {
		m.releasePlace(r) // given to it, but its end came first
	}
	if r.startedAt.IsZero() && r.pending.RuntimePod == nil {
		switch r.kind() {
		case Terminated:
			// Nothing of it runs: it keeps others of its name out, but is
			// not kept out by them.
			_ = r.static && m.claimName(r)
		case Terminating:
			// It never ran. There is nothing to end, but whoever asked
			// for its end wants to hear of it.
			if r.static && !m.holdsName(r) {
				m.discard(r)
				return false
			}
		case Sync:
			if r.static && !m.claimName(r) {
				return false
			}
		}
	}
	if r.kind() == Sync && !r.begun && !r.place {
		if !m.starts.take(r) {
			r.waitFor = "a place among the pods that start at the same time"
			return false
		}
	}
	r.waitFor = ""
	return true
}

// discard ends a record that was never allowed to begin, without any call.
func (m *Manager) discard(r *record) {
	r.terminatedAt = time.Now()
	m.met.took(Terminated, SyncUpdate, 0)
	m.finish(r)
}

// work makes one call after another until there is nothing to do.
func (m *Manager) work(r *record) {
	defer m.wg.Done()
	m.mu.Lock()
	for m.take(r) {
		m.mu.Unlock()
		out, err := m.call(r)
		now := time.Now()
		m.met.took(r.turn.kind, r.turn.work.Type, now.Sub(r.turn.start))
		m.mu.Lock()
		m.note(r, out, err, now)
		if out.After != nil {
			m.mu.Unlock()
			m.after(out.After)
			m.mu.Lock()
		}
	}
	r.running = false
	m.mu.Unlock()
}

// take consumes the pending update and makes of it the record's next turn. It
// tells whether there is one.
func (m *Manager) take(r *record) bool {
	if !r.pending.ok || r.finished || m.over() || m.records[r.uid] != r || !m.mayBegin(r) {
		return false
	}
	u := &r.pending.Update
	r.stopTimer()
	now := time.Now()
	if r.startedAt.IsZero() && u.Pod != nil {
		r.startedAt = now
		m.met.containers.Observe(float64(len(u.Pod.Spec.Containers)))
	}
	if !u.Start.IsZero() {
		m.met.start.Observe(now.Sub(u.Start).Seconds())
	}
	r.merge(u)
	t := &r.turn
	t.kind, t.start = r.kind(), now
	t.work = Work{
		Type: u.Type, Pod: r.active.Pod, MirrorPod: r.active.MirrorPod, RuntimePod: r.active.RuntimePod,
		NewerThan: r.newerThan, Evicted: r.evicted,
	}
	r.pending = news{}
	switch t.kind {
	case Terminating:
		r.startedTerminating = true
		r.doing = "stopping its containers"
	case Terminated:
		r.doing = "cleaning up after it"
	default:
		r.doing = "starting or checking its containers"
	}
	if t.kind != Sync {
		t.work.StatusFuncs = r.statusFuncs[:len(r.statusFuncs):len(r.statusFuncs)]
		if r.grace > 0 {
			grace := r.grace
			t.work.GracePeriodSeconds = &grace
		}
	}
	r.since = now
	t.ctx, r.cancel = context.WithCancelCause(m.ctx)
	if r.place {
		m.limitPlace(r)
	}
	return true
}

// call calls the syncer and turns a panic into an error.
func (m *Manager) call(r *record) (out Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = Outcome{}, &panicError{value: p}
			m.cfg.Log.Error("syncer panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	s, t := m.cfg.Syncer, &r.turn
	switch {
	case t.kind == Terminated:
		return out, s.SyncTerminatedPod(t.ctx, t.work)
	case t.kind == Terminating && t.work.RuntimePod != nil:
		return out, s.SyncTerminatingRuntimePod(t.ctx, t.work)
	case t.kind == Terminating:
		return out, s.SyncTerminatingPod(t.ctx, t.work)
	default:
		return s.SyncPod(t.ctx, t.work)
	}
}

// after calls what a syncer wants called after a turn.
func (m *Manager) after(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			m.cfg.Log.Error("syncer panicked after a sync", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
		}
	}()
	fn()
}

// note ends a turn.
func (m *Manager) note(r *record, out Outcome, err error, now time.Time) {
	kind, ctx := r.turn.kind, r.turn.ctx
	superseded := errors.Is(context.Cause(ctx), errSuperseded)
	r.cancel(nil)
	r.turn, r.cancel = turn{}, nil
	r.doing, r.since = "", now
	if kind == Sync {
		r.begun = true
		m.releasePlace(r)
	}
	if err != nil || out.Acted || kind != Sync {
		r.newerThan = now
	}
	m.conclude(r, kind, out, err, superseded)
}

// panicError is a panic of a syncer.
type panicError struct{ value any }

func (e *panicError) Error() string  { return fmt.Sprintf("panic: %v", e.value) }
func (e *panicError) Reason() string { return "Panic" }

// conclude decides what follows a call.
func (m *Manager) conclude(r *record, kind Kind, out Outcome, err error, superseded bool) {
	if err != nil {
		m.failed(r, kind, err, superseded)
		return
	}
	r.failures, r.lastErr = 0, nil
	switch {
	case kind == Terminated:
		m.finish(r)
	case kind == Terminating && r.active.RuntimePod != nil:
		m.forget(r)
	case kind == Terminating:
		r.terminatedAt = time.Now()
		r.notifyDone()
		m.replay(r)
	case out.Terminal:
		if r.terminatingAt.IsZero() {
			r.terminatingAt = time.Now()
		}
		r.startedTerminating = true
		m.replay(r)
	default:
		m.schedule(r, jitter(m.cfg.Resync), "resync")
	}
}

// failed schedules another try. A call that was interrupted for a newer
// request has not failed: that request is pending already.
func (m *Manager) failed(r *record, kind Kind, err error, superseded bool) {
	if m.over() {
		return
	}
	if superseded {
		m.replay(r)
		return
	}
	r.failures++
	r.lastErr = err
	delay, reason := m.retry(r.failures, err, time.Now())
	log := m.cfg.Log.Debug
	if r.failures&(r.failures-1) == 0 { // the 1st, 2nd, 4th, 8th ...
		log = m.cfg.Log.Warn
	}
	log("pod sync failed", zap.Int("failures", r.failures), zap.String("pod", r.namespace+"/"+r.name), zap.String("uid", string(r.uid)),
		zap.Stringer("stage", kind), zap.Duration("retry", delay), zap.String("reason", reason), zap.Error(err))
	m.schedule(r, delay, reason)
}

// schedule has the record's last update run again after d, unless a newer one
// comes first.
func (m *Manager) schedule(r *record, d time.Duration, reason string) {
	if r.pending.ok || m.over() {
		return // the worker goes on with it at once, or never
	}
	r.nextAt, r.nextReason = time.Now().Add(d), reason
	if r.timer != nil {
		r.timer.Reset(d)
		return
	}
	r.timer = time.AfterFunc(d, func() { m.Resync(r.uid) })
}

// finish closes a record at the end of its life. It stays, so that late
// updates are recognised, until SyncKnownPods finds the pod unwanted.
func (m *Manager) finish(r *record) {
	r.finished = true
	r.pending, r.statusFuncs = news{}, nil
	r.waitFor = ""
	r.stopTimer()
	r.notifyDone()
	m.releaseName(r)
	if r.restart != nil {
		m.forget(r)
	}
}

// forget drops a record, and begins the pod's next life if one was asked for.
func (m *Manager) forget(r *record) {
	if m.records[r.uid] == r {
		delete(m.records, r.uid)
	}
	r.finished = true
	r.pending = news{}
	r.stopTimer()
	r.notifyDone()
	m.releasePlace(r)
	m.releaseName(r)
	if u := r.restart; u != nil {
		r.restart = nil
		m.accept(r.uid, r.namespace, r.name, *u)
		if next := m.records[r.uid]; next != nil {
			next.newerThan = r.newerThan // what was seen of the old life is out of date
		}
	}
}
