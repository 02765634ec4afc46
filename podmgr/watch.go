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
	// busyPoll is how soon a file is looked at again that is being written;
	// the end of writing makes no event.
	busyPoll = 10 * time.Millisecond
	// stuckPoll is the same for a file that somebody has had open for long.
	stuckPoll = time.Second
	// missingPoll is how soon a directory is looked at again that cannot be
	// watched.
	missingPoll = time.Second
	// burst is how long after an event others are waited for: a copy of many
	// files is one change. It is short because it delays each of them.
	burst = 2 * time.Millisecond
)

// armPatience is how long it may take to have directories watched; the source
// goes on without what does not answer.
const armPatience = 10 * time.Second

// watcher waits for something to happen in a directory. A directory that is
// a link is watched where it leads, and so is the link.
type watcher struct {
	// path is clean, without a slash at its end: events are compared with it.
	path  string
	poll  bool // nothing is watched, and nothing missed by it
	log   *zap.Logger
	calls detached.Group[armed]
	// now is the result of the last call of arm that came back in time.
	now armed
	// removed are files that were removed since the last look, though they may
	// be there again.
	removed []string

	hand detached.Handover // of fs
	// Only the call that is under way has these.
	fs *fsnotify.Watcher
	on map[string]os.FileInfo // what is watched, as it was when that began
}

// armed is what to wait for.
type armed struct {
	fs      *fsnotify.Watcher // nil: nothing
	watched bool              // anything
}

// newWatcher opens nothing: arm does.
func newWatcher(path string, poll bool, log *zap.Logger) *watcher {
	return &watcher{path: filepath.Clean(path), poll: poll, log: log, on: map[string]os.FileInfo{}}
}

// close ends it. A call that is under way does so when it returns, if ever.
func (w *watcher) close() {
	w.hand.Release(func() {
		if w.fs != nil {
			_ = w.fs.Close()
		}
	})
}

// arm makes sure that the right directories are watched. It is called before
// each scan, so that nothing between the two is missed. It blocks for at most armPatience.
// Where the file system does not answer, the watches of before stay.
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
			w.now.watched = false // look more often
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

// want names what is to be watched: the directory, what holds the link that
// leads to it, or the nearest one above it that is there. Three cases, of which two may
// hold at once: a link is watched, and so is the directory that it leads to.
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
		// The state is taken before the watch begins: a directory that
		// is replaced in between then differs at the next look.
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

// wait returns when there may be something to see, at the latest after limit,
// and false when ctx ended.
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
			w.log.Warn("watching manifests", zap.Error(err))
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

// concerns leaves out what happens to the neighbours of the directory and of
// those above it.
func (w *watcher) concerns(ev fsnotify.Event) bool {
	// The last case is a directory above, whose creation
	// or removal changes what is to be watched.
	return ev.Name == w.path || filepath.Dir(ev.Name) == w.path || strings.HasPrefix(w.path, ev.Name+"/")
}

// drain takes the events that come right after one. The time is not extended by further
// events, so a busy directory is read all the same.
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

// note remembers a removal. A file that is renamed, as editors do to keep the
// version before, is not removed.
func (w *watcher) note(ev fsnotify.Event) {
	if ev.Has(fsnotify.Remove) && (ev.Name == w.path || filepath.Dir(ev.Name) == w.path) {
		w.removed = append(w.removed, ev.Name)
	}
}
