package serial

import (
	"context"
	"time"
)

// endContext releases the context of a call that has returned, and records in w.result whether the
// call was interrupted.
func (w *worker[K, U]) endContext(now time.Time) {
	r := &w.result
	r.At = now
	r.Interrupted = r.Err != nil && context.Cause(w.ctx) == ErrInterrupted //nolint:errorlint // given as it is
	w.cancel(nil)
}

// note records the result of a call and schedules the next step. The caller must call after
// without the lock, unless it is nil.
func (m *Manager[K, U]) note(w *worker[K, U]) (after func()) {
	r := &w.result
	w.ctx, w.cancel, w.since = nil, nil, r.At
	m.cfg.End(&w.call, r)
	m.slots.Release(w.slot)
	after = r.Next.then
	switch {
	case w.over, r.Err == nil && r.Next.verb == done:
		m.endLife(w)
	case m.over():
		// Nothing follows.
	case r.Interrupted:
		// It made way for what waits: it has not failed.
	case r.Err != nil:
		after = m.fail(w)
	default:
		w.succeed()
	}
	*r = Result{}
	return after
}

// fail records a failed call and schedules the retry. The caller must call after without the
// lock, unless it is nil.
func (m *Manager[K, U]) fail(w *worker[K, U]) (after func()) {
	next, err := w.result.Next, w.result.Err
	w.life.failures++
	w.life.err = err
	failures, retry, reason := w.life.failures, next.after, next.reason
	if next.verb != again {
		retry, reason = m.cfg.Backoff.Delay(failures), "error"
	}
	w.schedule(retry, reason)
	if m.cfg.OnError == nil {
		return next.then
	}
	return func() {
		m.cfg.OnError(w.call.Key, err, failures, retry)
		if next.then != nil {
			next.then()
		}
	}
}

// succeed applies the Next that the handler returned without an error.
func (w *worker[K, U]) succeed() {
	w.life.failures, w.life.err = 0, nil
	next := &w.result.Next
	if next.staged {
		w.life.stage = next.stage
	}
	if next.verb == again {
		w.schedule(next.after, next.reason)
	}
}

// schedule makes the worker call the handler with the last update after d, unless the inbox
// already has work.
func (w *worker[K, U]) schedule(d time.Duration, reason string) {
	switch {
	case !w.inbox.empty():
	case d == 0:
		w.inbox.again = true
	default:
		w.alarm.set(w.since.Add(d), d, reason)
	}
}

// endLife drops the state of a key whose call has returned. If an update is pending, the worker
// goes on with it as for a new key.
func (m *Manager[K, U]) endLife(w *worker[K, U]) {
	w.life, w.over = life[U]{}, false
	w.inbox.again = false
	if w.inbox.empty() {
		w.alarm.stop()
		delete(m.workers, w.call.Key)
	}
}
