package serial

import "time"

// Update is [Manager.Update] for callers that hold the lock.
func (l Locked[K, U]) Update(key K, u U) bool {
	m := l.m
	if m.stopped {
		return false
	}
	w := m.workers[key]
	if w == nil {
		w = m.newWorker(key)
	}
	if w.inbox.fresh {
		w.inbox.update = m.cfg.Merge(w.inbox.update, u)
	} else {
		w.inbox.update, w.inbox.fresh = u, true
	}
	if w.cancel != nil && !w.over && m.cfg.Interrupts(w.life.last, u) {
		w.cancel(ErrInterrupted)
	}
	m.wake(w)
	return true
}

func (m *Manager[K, U]) newWorker(key K) *worker[K, U] {
	w := &worker[K, U]{m: m, call: Call[K, U]{Key: key}, since: time.Now()}
	w.alarm.ring = w.ring
	m.workers[key] = w
	return w
}

// ring is called by the timer of a key's alarm. If the alarm is due, the key's handler is called
// again.
func (w *worker[K, U]) ring() {
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped || !w.alarm.fired(time.Now()) {
		return
	}
	w.inbox.again = true
	m.wake(w)
}

// Again is [Manager.Again] for callers that hold the lock.
func (l Locked[K, U]) Again(key K) bool { return l.again(key, false) }

// Interrupt is [Manager.Interrupt] for callers that hold the lock.
func (l Locked[K, U]) Interrupt(key K) bool { return l.again(key, true) }

func (l Locked[K, U]) again(key K, interrupt bool) bool {
	w := l.m.workers[key]
	if w == nil {
		return false
	}
	if w.over { // its next life, if any, has an update that waits
		return w.inbox.fresh
	}
	w.inbox.again = true
	if interrupt && w.cancel != nil {
		w.cancel(ErrInterrupted)
	}
	l.m.wake(w)
	return true
}

// Forget is [Manager.Forget] for callers that hold the lock.
func (l Locked[K, U]) Forget(key K) {
	w := l.m.workers[key]
	if w == nil {
		return
	}
	w.inbox = inbox[U]{}
	w.alarm.stop()
	if w.activity == Calling {
		w.over = true
		if w.cancel != nil {
			w.cancel(ErrInterrupted)
		}
		return
	}
	w.activity = Resting
	delete(l.m.workers, key)
}

// State is [Manager.State] for callers that hold the lock.
func (l Locked[K, U]) State(key K) (State[K], bool) {
	w, ok := l.m.workers[key]
	if !ok {
		return State[K]{}, false
	}
	return w.state(), true
}
