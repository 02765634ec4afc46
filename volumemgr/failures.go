package volumemgr

import (
	"fmt"
	"time"
)

// failures are consecutive failures of one operation. The zero value has none.
// Manager.mu guards it, as part of a volume or a device.
type failures struct {
	op    op
	count int
	// The first often says more than the last, which may be a consequence of it.
	first, last error
	since, at   time.Time // of the first and of the last
	until       time.Time // the next try
}

// add records a failure. A failure of another operation than the last resets the back-off.
func (f *failures) add(o op, err error, now time.Time) {
	// A tear-down after failed set-ups does not inherit their long wait.
	if f.op != o {
		*f = failures{op: o, first: err, since: now}
	}
	f.count++
	f.last, f.at = err, now
	f.until = now.Add(delay(f.count))
}

// clear resets the failures after a success.
func (f *failures) clear() { *f = failures{} }

// retryNow ends the current wait but keeps the count: the next failure leads to a longer wait.
func (f *failures) retryNow() { f.until = time.Time{} }

// left returns the rest of the back-off; 0 or less means that a retry is due.
func (f *failures) left(now time.Time) time.Duration { return f.until.Sub(now) }

// err returns the last error, together with the first one if it differs. The texts
// are compared, since each try creates a new error value.
func (f *failures) err() error {
	if f.first == nil || f.last == nil || f.first.Error() == f.last.Error() {
		return f.last
	}
	return fmt.Errorf("%w (first: %w)", f.last, f.first)
}
