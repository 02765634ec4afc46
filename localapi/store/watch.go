package store

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Pauses of Watch.
const (
	// burst is how long further events are waited for after the first one, so that copying many
	// files is one change. Later events do not extend it: otherwise a program that writes all the
	// time would hide other changes.
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
// error: if the directory is removed, it is looked for every unwatchedPoll until it is back.
// changed is called on the goroutine of Watch, without the lock.
func (d *Dir) Watch(ctx context.Context, changed func([]Document)) error {
	return d.follow(ctx, d.watcher(), changed)
}

func (d *Dir) follow(ctx context.Context, w watcher, changed func([]Document)) error {
	defer func() { w.close() }()
	timer := time.NewTimer(burst) // for changes between Load and now
	defer timer.Stop()
	started := true // the timer is running for a burst
	start := func() {
		if !started {
			timer.Reset(burst)
			started = true
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.events:
			start()
		case err := <-w.lost:
			_ = err // the next scan finds what was lost
			start()
		case <-timer.C:
			started = false
			if w.events == nil {
				// The watch starts before the scan, so that a change in between causes an event.
				w = d.watcher()
			}
			docs, again, err := d.scan()
			if len(docs) > 0 {
				changed(docs)
			}
			if err != nil { // the directory may be replaced by another one
				w.close()
				w = watcher{}
			}
			switch {
			case again:
				timer.Reset(busyPoll)
			case w.events == nil:
				// With events, the timer stays off until the next event.
				timer.Reset(unwatchedPoll)
			}
		}
	}
}

// watcher reports events in a directory. With the zero value there are none.
type watcher struct {
	fs     *fsnotify.Watcher
	events <-chan fsnotify.Event
	lost   <-chan error // errors; some events may have been lost
}

// watcher starts to watch the directory. If inotify has no more instances, or the directory does
// not exist, it returns the zero value, and Watch polls.
func (d *Dir) watcher() watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return watcher{}
	}
	if err := w.Add(d.path); err != nil {
		_ = w.Close()
		return watcher{}
	}
	return watcher{fs: w, events: w.Events, lost: w.Errors}
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}
