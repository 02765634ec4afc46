// Package dirwatch reports changes in directories. A directory may be missing, be a link, or be
// removed and created again.
package dirwatch

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/wake"
)

// watchTimeout limits the duration of one call of Watch, because a file system may hang.
const watchTimeout = 10 * time.Second

// Watcher watches directories with inotify. While a file system hangs, calls of Watch together
// occupy only one goroutine.
type Watcher struct {
	failed  func(dir string, err error)
	removed func(path string)
	changed wake.Signal
	calls   detached.Group[bool]

	mu   sync.Mutex
	dirs []string // of the last call of Watch

	hand detached.Handover // closes fs after its last use
	// Only a running call of arm uses the fields below.
	fs   *fsnotify.Watcher
	on   map[string]os.FileInfo // by watched path: the directory when its watch began
	said map[string]bool        // paths whose failed watches were reported
}

// New returns a Watcher that watches nothing yet. The caller has to close it.
//
// failed is called if a directory cannot be watched. It is called again for the same directory only
// after the directory was watched in between. dir is "" for a failure that concerns all directories,
// such as an overflow of the kernel's event queue.
//
// removed is called with the path of each removed directory, and of each removed entry of a
// directory, even if it exists again. It is not called for renamed files. It is called before
// Changed gets a value.
//
// Both functions may be nil, and must not block.
func New(failed func(dir string, err error), removed func(path string)) *Watcher {
	if failed == nil {
		failed = func(string, error) {}
	}
	if removed == nil {
		removed = func(string) {}
	}
	return &Watcher{failed: failed, removed: removed, changed: wake.New(), on: map[string]os.FileInfo{}, said: map[string]bool{}}
}

// Close ends the watches. If a call of Watch hangs, the watches end when that call returns.
func (w *Watcher) Close() {
	w.hand.Release(func() {
		if w.fs != nil {
			_ = w.fs.Close()
		}
	})
}

// Changed returns a channel that gets a value after changes of the directories, of their entries,
// and of the directories above them. The channel holds at most one value, which stands for all
// changes since the last: the receiver has to read all directories.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Watch sets the directories to watch. Their paths must be absolute and clean. Call Watch before
// each read of the directories, so that no change after the read is missed. For a missing directory
// it watches the nearest existing parent; for a link, also the directory that contains the link.
// Watch returns true if all are watched. Otherwise the caller has to read the directories again
// from time to time. Watch blocks for at most 10 s.
func (w *Watcher) Watch(ctx context.Context, dirs ...string) bool {
	w.mu.Lock()
	w.dirs = slices.Clone(dirs)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	all, err := w.calls.Do(ctx, "arm", func() (all bool, err error) {
		w.hand.Use(func() { all = w.arm(dirs) })
		return all, nil
	})
	return err == nil && all
}

// arm creates the fsnotify watcher if necessary, and watches the directories. It reports whether all
// are watched.
func (w *Watcher) arm(dirs []string) bool {
	if w.fs == nil {
		f, err := fsnotify.NewBufferedWatcher(64)
		if err != nil {
			w.fail("", err)
			return false
		}
		w.fs = f
		go w.listen(f)
	}
	all := true
	// Repeated, since a directory may appear before its parent is watched. Bounded, since a directory
	// may come and go all the time.
	for range 8 {
		want := wanted(dirs)
		all = w.watch(want)
		if maps.Equal(want, wanted(dirs)) {
			break
		}
	}
	return all
}

// fail calls w.failed for a path, unless the path's failure was reported before.
func (w *Watcher) fail(path string, err error) {
	if !w.said[path] {
		w.failed(path, err)
	}
	w.said[path] = true
}

// wanted returns the paths to watch for directories: each existing directory, the nearest existing
// parent of each missing one, and the directory that contains each link.
func wanted(dirs []string) map[string]bool {
	want := map[string]bool{}
	for _, dir := range dirs {
		// If a rename replaces a link, only the directory that contains the link gets an event.
		if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			want[filepath.Dir(dir)] = true
		}
		for {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				want[dir] = true
				break
			}
			if dir == filepath.Dir(dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return want
}

// watch adds and removes watches, so that exactly the paths of wanted are watched. It returns false
// if a path cannot be watched.
func (w *Watcher) watch(wanted map[string]bool) bool {
	live := w.fs.WatchList() // the kernel ends the watch of a removed directory
	for path, was := range w.on {
		now, err := os.Stat(path)
		// A new directory may have the inode of the former one.
		if !wanted[path] || err != nil || !os.SameFile(was, now) || !slices.Contains(live, path) {
			_ = w.fs.Remove(path) // fails if the watch has ended with its directory
			delete(w.on, path)
		}
	}
	all := true
	for path := range wanted {
		if w.on[path] != nil {
			continue
		}
		// Stat comes before Add: if the directory is replaced in between, the next call of watch
		// finds that info differs.
		info, err := os.Stat(path)
		if err == nil {
			err = w.fs.Add(path)
		}
		if err != nil {
			all = false
			w.fail(path, err)
			continue
		}
		delete(w.said, path)
		w.on[path] = info
	}
	maps.DeleteFunc(w.said, func(path string, _ bool) bool { return path != "" && !wanted[path] })
	return all
}

// listen sends values to Changed for events and errors of f, until f is closed.
func (w *Watcher) listen(f *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-f.Events:
			if !ok {
				return
			}
			if !w.take(e) {
				continue
			}
		case err, ok := <-f.Errors:
			if !ok {
				return
			}
			w.failed("", err)
		}
		w.changed.Set()
	}
}

// take reports whether an event concerns a watched directory, one of its entries or one of its
// parents. For a removed directory or entry it calls w.removed.
func (w *Watcher) take(e fsnotify.Event) bool {
	w.mu.Lock()
	dirs := w.dirs
	w.mu.Unlock()
	if slices.ContainsFunc(dirs, func(dir string) bool { return e.Name == dir || filepath.Dir(e.Name) == dir }) {
		if e.Has(fsnotify.Remove) {
			w.removed(e.Name)
		}
		return true
	}
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(dir, e.Name+"/") })
}
