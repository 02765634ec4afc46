package podmgr

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// Pauses of the watcher.
const (
	// busyPoll is the interval of checks of a file that is being written: the end of writing
	// causes no event.
	busyPoll = 10 * time.Millisecond
	// stuckPoll is the interval for a file that has been open for writing for long.
	stuckPoll = time.Second
	// missingPoll is the interval for a directory that cannot be watched.
	missingPoll = time.Second
	// burst is the time during which more events are collected after the first, so that a copy
	// of many files is one change. It delays each change.
	burst = 2 * time.Millisecond
)

// armPatience is the timeout for watching directories. The source continues without those that
// do not answer.
const armPatience = 10 * time.Second

// watcher waits for changes in a directory. If its path is a link, both the link and its target
// are watched.
type watcher struct {
	// path is clean, without a slash at its end: events are compared with it.
	path  string
	poll  bool // nothing is watched (DirectoryConfig.Poll)
	log   *zap.Logger
	calls detached.Group[armed]
	// now is the result of the last call of arm that came back in time.
	now armed
	// removed has the files that were removed since the last scan, even if they exist again.
	removed []string

	hand detached.Handover // of fs and on
	// Only a running call of doArm uses the fields below.
	fs *fsnotify.Watcher
	on map[string]os.FileInfo // what is watched, as it was when that began
}

// armed is the result of arm.
type armed struct {
	fs      *fsnotify.Watcher // nil: nothing
	watched bool              // anything
}

// newWatcher returns a watcher that watches nothing until arm is called.
func newWatcher(path string, poll bool, log *zap.Logger) *watcher {
	return &watcher{path: filepath.Clean(path), poll: poll, log: log, on: map[string]os.FileInfo{}}
}

// close releases the watches. A call of arm that hangs releases them when it returns.
func (w *watcher) close() {
	w.hand.Release(func() {
		if w.fs != nil {
			_ = w.fs.Close()
		}
	})
}

// arm updates the watched directories. It is called before each scan, so that no change after
// the scan is missed. It blocks for at most armPatience. If the file system does not answer, the
// previous watches stay.
func (w *watcher) arm(ctx context.Context) {
	if w.poll {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, armPatience)
	defer cancel()
	now, err := w.calls.Do(ctx, w.path, func() (now armed, err error) {
		w.hand.Use(func() { now = w.doArm() })
		return now, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			w.now.watched = false // scan more often
		}
		return
	}
	w.now = now
}

// doArm runs in a call of its own, and may wait for
// ever. One at a time runs, since all share a key.
func (w *watcher) doArm() armed {
	if w.fs == nil {
		// Some events are buffered: Run takes none during a scan.
		fw, err := fsnotify.NewBufferedWatcher(64)
		if err != nil {
			w.log.Warn("failed to watch manifests; they are only read from time to time", zap.Error(err))
			return armed{}
		}
		w.fs = fw
	}
	// Again if a directory came while its parent was not watched yet. Bounded, since a
	// directory that comes and goes all the time would hold the call for ever.
	for range 8 {
		want := w.want()
		w.watch(want)
		if maps.Equal(want, w.want()) {
			break
		}
	}
	return armed{fs: w.fs, watched: len(w.on) > 0}
}

// want returns the directories to watch: the directory itself; the parent of the link that leads
// to it; or, if it is missing, its nearest existing ancestor.
func (w *watcher) want() map[string]bool {
	want := map[string]bool{}
	if fi, err := os.Stat(w.path); err == nil && fi.IsDir() {
		want[w.path] = true
	}
	switch fi, err := os.Lstat(w.path); {
	// A link is replaced by a rename, of which only the directory around it gets an event.
	case err == nil && !fi.IsDir(): // a file or a link
		want[filepath.Dir(w.path)] = true
	case err != nil:
		// Nothing below is there: its creation is an event of the nearest directory above.
		for dir := filepath.Dir(w.path); ; dir = filepath.Dir(dir) {
			if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
				want[dir] = true
				break
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return want
}

// watch brings the watches in line with want. A directory that
// cannot be watched is logged, and is left to the rescans.
func (w *watcher) watch(want map[string]bool) {
	live := w.fs.WatchList() // the watch of a directory goes with it
	for p, was := range w.on {
		now, err := os.Stat(p)
		// One that was made anew may have the inode of the one before.
		if !want[p] || err != nil || !os.SameFile(was, now) || !slices.Contains(live, p) {
			// The kernel may have dropped the watch together
			// with the directory: such an error is expected.
			_ = w.fs.Remove(p)
			delete(w.on, p)
		}
	}
	for p := range want {
		if w.on[p] != nil {
			continue
		}
		// The state is read before the watch begins: if the directory is replaced in
		// between, the next call finds a difference.
		fi, err := os.Stat(p)
		if err == nil {
			err = w.fs.Add(p)
		}
		if err != nil {
			w.log.Warn("failed to watch directory", zap.String("directory", p), zap.Error(err))
			continue
		}
		w.on[p] = fi
	}
}

// wait returns true after a change in the watched directories, at the latest after limit, and
// false when ctx ends.
func (w *watcher) wait(ctx context.Context, limit time.Duration) bool {
	// Without a watch no event will end the wait.
	if !w.now.watched && !w.poll {
		limit = min(limit, missingPoll)
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	// Without a watcher both stay nil, and a nil channel never delivers.
	var events chan fsnotify.Event
	var errs chan error
	if w.now.fs != nil {
		events, errs = w.now.fs.Events, w.now.fs.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			return true
		case err := <-errs:
			w.log.Warn("failed to watch manifests", zap.Error(err))
			return true // events may have been lost
		case ev := <-events:
			if !w.concerns(ev) {
				continue
			}
			w.note(ev)
			w.drain(ctx, events)
			return true
		}
	}
}

// concerns reports whether an event is about the directory, its files or its ancestors.
func (w *watcher) concerns(ev fsnotify.Event) bool {
	// The last case is a directory above, whose creation
	// or removal changes what is to be watched.
	return ev.Name == w.path || filepath.Dir(ev.Name) == w.path || strings.HasPrefix(w.path, ev.Name+"/")
}

// drain receives the events of the next burst. More events do not extend this time, so a busy
// directory is still read.
func (w *watcher) drain(ctx context.Context, events <-chan fsnotify.Event) {
	t := time.NewTimer(burst)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			w.note(ev)
		case <-t.C:
			return
		}
	}
}

// note records removed files. A renamed file, such as an editor's backup, does not count as
// removed.
func (w *watcher) note(ev fsnotify.Event) {
	if ev.Has(fsnotify.Remove) && (ev.Name == w.path || filepath.Dir(ev.Name) == w.path) {
		w.removed = append(w.removed, ev.Name)
	}
}
