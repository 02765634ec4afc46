package serial

import "time"

// alarm calls a function at a time that changes often. Its timer is moved
// only when it would be late, and set again when it was early: most calls
// postpone the next one, which then costs nothing.
type alarm struct {
	at     time.Time // zero: not set
	reason string

	ring  func()
	timer *time.Timer // nil before the first time
	armed time.Time   // when timer fires; zero: it does not
}

// set has ring called at a time, which is in d.
func (a *alarm) set(at time.Time, d time.Duration, reason string) {
	a.at, a.reason = at, reason
	if !a.armed.IsZero() && !a.armed.After(at) {
		return
	}
	a.armed = at
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
		return
	}
	a.timer.Reset(d)
}

func (a *alarm) clear() { a.at, a.reason = time.Time{}, "" }

// stop clears the alarm and releases its timer.
func (a *alarm) stop() {
	a.clear()
	a.armed = time.Time{}
	if a.timer != nil {
		a.timer.Stop()
	}
}

// fired notes that the timer has, and reports whether it was time.
func (a *alarm) fired(now time.Time) bool {
	a.armed = time.Time{}
	switch {
	case a.at.IsZero():
		return false
	case a.at.After(now):
		a.set(a.at, a.at.Sub(now), a.reason)
		return false
	}
	a.clear()
	return true
}
