package volumemgr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Waiting for volumes. A volume settles when its operation has succeeded or failed, or when the
// opposite is requested: Unmount during a Mount, or Mount during an Unmount.

// Error says why a volume is not mounted, or not unmounted. Mount and Unmount return several,
// joined; errors.As finds the first one.
type Error struct {
	Volume string // name in the pod's spec, or on disk
	Err    error
	Next   time.Time // time of the next attempt; zero if none is planned
}

// Error names the volume and the cause.
func (e *Error) Error() string { return fmt.Sprintf("volume %q: %v", e.Volume, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// RetryAt returns the time of the manager's next attempt. Until then the caller need not call
// again: Config.Ready is called once the volumes are mounted.
func (e *Error) RetryAt() time.Time { return e.Next }

// failure returns the error for waiters of v. f has the failures of the volume or of its device.
// The caller holds m.mu.
func (v *volume) failure(f *failures) error {
	return &Error{Volume: v.shown(), Err: f.err(), Next: f.until}
}

// shown returns the volume's name for messages: its first name in the pod's spec, or its name on
// disk if only the directory is known.
func (v *volume) shown() string {
	if len(v.outer) > 0 {
		return v.outer[0]
	}
	return v.key.name
}

// waiter waits for volumes. Manager.mu guards all fields except done.
type waiter struct {
	left map[*volume]struct{}
	// errs are the non-nil errors of volumes that have settled.
	errs []error
	open bool          // all volumes have been added
	done chan struct{} // closed when left is empty
}

// newWaiter returns a waiter. It cannot be done before ready is called.
func newWaiter() *waiter {
	return &waiter{left: map[*volume]struct{}{}, done: make(chan struct{})}
}

// add adds v to the volumes to wait for. It is called before ready, with Manager.mu held.
func (w *waiter) add(v *volume) {
	w.left[v] = struct{}{}
	if v.waiters == nil {
		v.waiters = map[*waiter]struct{}{}
	}
	v.waiters[w] = struct{}{}
}

// ready records that all volumes have been added.
func (w *waiter) ready() {
	w.open = true
	w.check()
}

// check closes done when the last volume has settled.
func (w *waiter) check() {
	if w.open && len(w.left) == 0 {
		w.open = false
		close(w.done)
	}
}

// drop ends the wait for v, with an error or nil. The caller holds Manager.mu.
func (w *waiter) drop(v *volume, err error) {
	delete(w.left, v)
	delete(v.waiters, w)
	if err != nil {
		w.errs = append(w.errs, err)
	}
	w.check()
}

// settle ends all waits for v, with an error or nil. It adds the volume's name to an error that
// has none. The caller holds Manager.mu.
func (v *volume) settle(err error) {
	var named *Error
	if err != nil && !errors.As(err, &named) {
		err = &Error{Volume: v.shown(), Err: err}
	}
	for w := range v.waiters {
		w.drop(v, err)
	}
}

// wait waits until every volume has settled or ctx ends. If ctx ends, gaveUp is called, with m.mu
// held, for each volume that has not settled. The error joins the errors of all volumes, sorted by
// text, so that repeated failures have the same text.
func (m *Manager) wait(ctx context.Context, w *waiter, gaveUp func(*volume)) error {
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	// ctx may have ended when done was closed too; the remaining volumes decide.
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(w.left) == 0 {
		slices.SortFunc(w.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(w.errs...)
	}
	var names []string
	for v := range w.left {
		names = append(names, fmt.Sprintf("%s (%s)", v.shown(), v.state()))
		delete(v.waiters, w)
	}
	// A second loop, since gaveUp checks whether a volume has other waiters: this one must have
	// left all volumes first.
	for v := range w.left {
		gaveUp(v)
	}
	slices.Sort(names)
	slices.SortFunc(w.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(append([]error{fmt.Errorf("waiting for volumes %s: %w", strings.Join(names, ", "), ctx.Err())}, w.errs...)...)
}
