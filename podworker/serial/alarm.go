package serial

import "time"

// alarm calls a function at a time that changes often. The timer is reset only if the new time is
// earlier than the time at which the timer fires. If the timer fires too early, it is set again. So
// a postponed alarm costs nothing, and most changes postpone it.
type alarm struct {
	at     time.Time // when ring is to be called; zero if the alarm is not set
	reason string

	ring  func()
	timer *time.Timer // nil before the first call of set
	armed time.Time   // when timer fires; zero if it is not running
}

// set makes the alarm due at the given time, which is d from now.
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

// fired records that the timer has fired, and reports whether the alarm is due. If it is not due
// yet, the timer is set again.
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
