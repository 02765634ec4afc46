package volumemgr

import (
	"fmt"
	"time"
)

// failures are those in a row of one operation.
type failures struct {
	op          op
	count       int
	first, last error
	since, at   time.Time // of the first and of the last
	until       time.Time // the next try
}

// add notes a failure. Another operation than the last starts afresh.
func (f *failures) add(o op, err error, now time.Time) {
	if f.op != o {
		*f = failures{op: o, first: err, since: now}
	}
	f.count++
	f.last, f.at = err, now
	f.until = now.Add(delay(f.count))
}

func (f *failures) clear() { *f = failures{} }

// now ends the back-off, but forgets nothing.
func (f *failures) now() { f.until = time.Time{} }

func (f *failures) left(now time.Time) time.Duration { return f.until.Sub(now) }

// err is the last error; the first is told as well if it was another.
func (f *failures) err() error {
	if f.first == nil || f.last == nil || f.first.Error() == f.last.Error() {
		return f.last
	}
	return fmt.Errorf("%w (first: %w)", f.last, f.first)
}
