package serial

import (
	"context"
	"errors"
	"time"

	"github.com/nodewright/nodewright/internal/slots"
)

// Activity is what the worker of a key is doing.
type Activity uint8

// The activities of a worker.
const (
	// Resting means that the worker has nothing to do before NextAt or the next update.
	Resting Activity = iota
	// Queued means that the worker waits for Run, or because Config.Limit is reached.
	Queued
	// Calling means that the handler is being called.
	Calling
)

// String returns resting, queued or calling.
func (a Activity) String() string { return [...]string{"resting", "queued", "calling"}[a] }

// ErrInterrupted is the context.Cause of a call's context that an urgent update or
// [Manager.Interrupt] cancelled.
var ErrInterrupted = errors.New("serial: interrupted")

// worker is the worker of one key. Manager.mu guards its fields, except call and result while a
// call is in flight: then they belong to the worker's goroutine.
type worker[K comparable, U any] struct {
	m        *Manager[K, U]
	activity Activity
	over     bool // the key was forgotten while a call was in flight
	life     life[U]
	inbox    inbox[U]
	alarm    alarm
	slot     *slots.Slot // its slot under Config.Limit; nil if it has none
	since    time.Time

	call   Call[K, U] // Key is always set
	result Result
	ctx    context.Context // context of the call in flight
	cancel context.CancelCauseFunc
}

// life is the state of a key from its first update until it is forgotten.
type life[U any] struct {
	stage    Stage
	calls    int
	last     U // the update that was delivered last
	failures int
	err      error
}

// inbox is the work that waits for a worker.
type inbox[U any] struct {
	update U // valid if fresh
	fresh  bool
	again  bool // call the handler with the last update if there is no fresh one
}

func (b *inbox[U]) empty() bool { return !b.fresh && !b.again }

// wake starts a goroutine for a worker whose inbox has work, unless the worker has a goroutine or
// has to wait.
func (m *Manager[K, U]) wake(w *worker[K, U]) {
	if w.activity == Calling || w.inbox.empty() {
		return
	}
	if m.ctx == nil || m.stopped || !m.admit(w) {
		w.activity = Queued
		return
	}
	w.activity = Calling
	m.working++
	go w.work()
}

// work makes one call after another until there is nothing to do.
func (w *worker[K, U]) work() {
	m := w.m
	now := time.Now() // not while locked: it takes as long as the rest
	m.mu.Lock()
	for m.take(w, now) {
		m.mu.Unlock()
		m.handle(w)
		now = time.Now()
		w.endContext(now)
		m.cfg.Called(&w.call, &w.result)
		m.mu.Lock()
		if then := m.note(w); then != nil {
			m.mu.Unlock()
			then()
			now = time.Now()
			m.mu.Lock()
		}
	}
	m.working--
	m.rest()
	m.mu.Unlock()
}

// take prepares the worker's next call from its inbox. It returns false if there is none, or if the
// call has to wait; the worker's goroutine then ends.
func (m *Manager[K, U]) take(w *worker[K, U], now time.Time) bool {
	for {
		if w.over { // forgotten between two calls
			m.endLife(w)
		}
		if w.inbox.empty() {
			m.slots.Release(w.slot)
			w.activity = Resting
			return false
		}
		if m.over() || !m.admit(w) {
			w.activity = Queued
			return false
		}
		if m.begin(w, now) {
			return true
		}
	}
}

// begin empties the inbox, and reports whether Config.Begin allows the call that admit has
// prepared.
func (m *Manager[K, U]) begin(w *worker[K, U], now time.Time) bool {
	w.alarm.clear()
	w.call.Start = now
	w.life.last = w.call.Update
	w.inbox = inbox[U]{}
	if !m.cfg.Begin(&w.call) {
		return false
	}
	w.since = w.call.Start
	w.life.calls++
	// Run cancels it: to be a child of Run's context costs more than the rest
	// of a call.
	w.ctx, w.cancel = context.WithCancelCause(m.values)
	return true
}

// admit prepares the worker's next call, and reports whether the call may be made now. If it
// returns false, the worker waits for a slot.
func (m *Manager[K, U]) admit(w *worker[K, U]) bool {
	w.prepare()
	if m.cfg.Limit == 0 || !m.cfg.Limited(&w.call) {
		m.slots.Release(w.slot) // acquired for a call that was not made
		return true
	}
	if !w.slot.Held() {
		w.slot = m.slots.Acquire(w)
	}
	return w.slot.Held()
}

// turn wakes the worker that is next in the queue for a slot.
func (m *Manager[K, U]) turn(w *worker[K, U]) {
	if w.activity == Queued {
		m.wake(w)
	}
}

// prepare fills w.call for the work in the inbox.
func (w *worker[K, U]) prepare() {
	c := &w.call
	c.Update, c.Fresh = w.life.last, w.inbox.fresh
	if c.Fresh {
		c.Update = w.inbox.update
	}
	c.Stage, c.Calls, c.Failures = w.life.stage, w.life.calls, w.life.failures
}

// handle calls the handler and turns a panic into an error.
func (m *Manager[K, U]) handle(w *worker[K, U]) {
	defer Recover(&w.result.Err)
	w.result.Next, w.result.Err = m.cfg.Handle(w.ctx, &w.call)
}
