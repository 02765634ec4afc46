package volumemgr

import (
	"fmt"
	"time"
)

// failures counts consecutive failures of one operation. The zero value has none. It is part of a
// volume or a device, so Manager.mu guards it.
type failures struct {
	op    op
	count int
	// The first error often says more than the last one, which may be a consequence of it.
	first, last error
	since, at   time.Time // times of the first and the last failure
	until       time.Time // time of the next attempt
}

// add records a failure. If the previous failure was of another operation, the back-off starts
// from the beginning.
func (f *failures) add(o op, err error, now time.Time) {
	// A tear-down must not inherit the back-off of failed set-ups.
	if f.op != o {
		*f = failures{op: o, first: err, since: now}
	}
	f.count++
	f.last, f.at = err, now
	f.until = now.Add(delay(f.count))
}

// clear removes the failures after a success.
func (f *failures) clear() { *f = failures{} }

// retryNow ends the current back-off but keeps the count, so that the next failure leads to a
// longer one.
func (f *failures) retryNow() { f.until = time.Time{} }

// left returns the remaining back-off. If it is 0 or less, a retry is due.
func (f *failures) left(now time.Time) time.Duration { return f.until.Sub(now) }

// err returns the last error, together with the first one if its text differs. Texts are
// compared, since each attempt creates a new error value.
func (f *failures) err() error {
	if f.first == nil || f.last == nil || f.first.Error() == f.last.Error() {
		return f.last
	}
	return fmt.Errorf("%w (first: %w)", f.last, f.first)
}
