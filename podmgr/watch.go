package podmgr

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Pauses of the watcher.
const (
	// busyPoll is how soon a file is looked at again that is being written;
	// the end of writing makes no event.
	busyPoll = 10 * time.Millisecond
	// missingPoll is how soon a directory is looked for that is not there
	// or cannot be watched.
	missingPoll = time.Second
	// burst is how long after an event others are waited for: a copy of many
	// files is one change. It is short because it delays each of them.
	burst = 2 * time.Millisecond
)

// watcher waits for something to happen in a directory. A directory that is
// a link is watched where it leads, and so is the link.
type watcher struct {
	path string
	log  *zap.Logger
	fs   *fsnotify.Watcher
	on   map[string]os.FileInfo // what is watched, as it was when that began
}

func newWatcher(path string, log *zap.Logger) *watcher {
	return &watcher{path: path, log: log, on: map[string]os.FileInfo{}}
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close()
	}
}

// arm makes sure that the right directories are watched. It is called before
// each scan, so that nothing between the two is missed.
func (w *watcher) arm() {
	if w.fs == nil {
		fw, err := fsnotify.NewBufferedWatcher(64)
		if err != nil {
			w.log.Warn("manifests are not watched, only read from time to time", zap.Error(err))
			return
		}
		w.fs = fw
	}
	want := map[string]bool{}
	if fi, err := os.Stat(w.path); err == nil && fi.IsDir() {
		want[w.path] = true
	}
	if fi, err := os.Lstat(w.path); err == nil && (!fi.IsDir() || fi.Mode()&os.ModeSymlink != 0) {
		want[filepath.Dir(w.path)] = true
	}
	for p, was := range w.on {
		now, err := os.Stat(p)
		if !want[p] || err != nil || !os.SameFile(was, now) {
			_ = w.fs.Remove(p)
			delete(w.on, p)
		}
	}
	for p := range want {
		if w.on[p] != nil {
			continue
		}
		fi, err := os.Stat(p)
		if err == nil {
			err = w.fs.Add(p)
		}
		if err != nil {
			w.log.Warn("directory is not watched", zap.String("directory", p), zap.Error(err))
			continue
		}
		w.on[p] = fi
	}
}

// wait returns when there may be something to see, and false when ctx ended.
func (w *watcher) wait(ctx context.Context, rescan time.Duration, busy bool) bool {
	limit := rescan
	switch {
	case busy:
		limit = busyPoll
	case len(w.on) == 0:
		limit = min(rescan, missingPoll)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.fs != nil {
		events, errs = w.fs.Events, w.fs.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			return true
		case err := <-errs:
			w.log.Warn("watching manifests", zap.Error(err))
			return true // events may have been lost
		case ev := <-events:
			if !w.concerns(ev) {
				continue
			}
			w.drain(ctx, events)
			return true
		}
	}
}

// concerns leaves out what happens to the neighbours of the directory itself.
func (w *watcher) concerns(ev fsnotify.Event) bool {
	dir := filepath.Dir(ev.Name)
	return ev.Name == w.path || dir == w.path || w.on[dir] != nil && dir != filepath.Dir(w.path)
}

// drain takes the events that come right after one.
func (w *watcher) drain(ctx context.Context, events <-chan fsnotify.Event) {
	t := time.NewTimer(burst)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-t.C:
			return
		}
	}
}
