package store

import (
	"context"
	"time"

	"github.com/nodewright/nodewright/internal/dirwatch"
)

// Pauses of Watch.
const (
	// burst is how long Watch collects further events after the first one, so that a copy of many
	// files is reported at once. Later events do not extend it: a program that writes all the time
	// would otherwise delay the report of other changes.
	burst = 2 * time.Millisecond
	// busyPoll is how soon a file that is being written is looked at again, since closing it
	// causes no event.
	busyPoll = 10 * time.Millisecond
	// stuckWriter limits the wait for a file that is open for writing, counted from its last
	// change.
	stuckWriter = 2 * time.Second
	// unwatchedPoll is how often the directory is read if it cannot be watched.
	unwatchedPoll = 20 * time.Second
)

// Watch implements Store. It sleeps while nothing happens in the directory. It never returns an
// error: a directory that was removed is read again when it is back. changed is called on the
// goroutine of Watch, without the lock.
func (d *Dir) Watch(ctx context.Context, changed func([]Document)) error {
	w := dirwatch.New(nil, nil)
	defer w.Close()
	return d.follow(ctx, w, changed)
}

// watcher has the methods of *dirwatch.Watcher that follow calls. Tests have another
// implementation.
type watcher interface {
	Watch(ctx context.Context, dirs ...string) bool
	Changed() <-chan struct{}
}

func (d *Dir) follow(ctx context.Context, w watcher, changed func([]Document)) error {
	timer := time.NewTimer(burst) // for changes between Load and now
	defer timer.Stop()
	collecting := true // the timer runs for a burst
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.Changed():
			if !collecting {
				timer.Reset(burst)
				collecting = true
			}
		case <-timer.C:
			collecting = false
			watched := w.Watch(ctx, d.path) // before the scan, so that a change in between is an event
			docs, again, err := d.scan()
			if len(docs) > 0 {
				changed(docs)
			}
			switch {
			case again:
				timer.Reset(busyPoll)
			case !watched || err != nil:
				timer.Reset(unwatchedPoll)
			}
		}
	}
}
