package store

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Pauses of Watch.
const (
	// burst is how long after the first event others are waited for: a copy of many
	// files is one change. Later events do not prolong it, or a program that writes all
	// the time would hide the changes of others.
	burst = 2 * time.Millisecond
	// busyPoll is how soon a file is looked at again that is being written: the end of
	// writing makes no event.
	busyPoll = 10 * time.Millisecond
	// stuckWriter is how long a file that somebody has open for writing is waited for
	// after its last change.
	stuckWriter = 2 * time.Second
	// unwatchedPoll is how often the directory is read where it cannot be watched.
	unwatchedPoll = 20 * time.Second
)

// Watch implements Store. It sleeps as long as nothing happens in the directory. It
// never returns an error: a directory that goes is read again every unwatchedPoll,
// until it is back. changed is called from the goroutine of Watch alone, without the
// lock.
func (d *Dir) Watch(ctx context.Context, changed func([]Document)) error {
	return d.follow(ctx, d.watcher(), changed)
}

func (d *Dir) follow(ctx context.Context, w watcher, changed func([]Document)) error {
	defer func() { w.close() }()
	timer := time.NewTimer(burst) // what changed between Load and now
	defer timer.Stop()
	started := true // the timer runs for a burst
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
				// The watch begins before the scan: what changes between the two makes
				// an event.
				w = d.watcher()
			}
			docs, again, err := d.scan()
			if len(docs) > 0 {
				changed(docs)
			}
			if err != nil { // another directory may come in its place
				w.close()
				w = watcher{}
			}
			switch {
			case again:
				timer.Reset(busyPoll)
			case w.events == nil:
				// Where there are events, the timer stays off: the next event starts
				// it.
				timer.Reset(unwatchedPoll)
			}
		}
	}
}

// watcher reports what happens in a directory; the zero value of nothing.
type watcher struct {
	fs     *fsnotify.Watcher
	events <-chan fsnotify.Event
	lost   <-chan error // some events were
}

// watcher watches the directory. Without inotify instances left, or without the
// directory, the result is the zero value, and Watch polls.
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
