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
)

// patience limits one call of Watch: a file system may not answer.
const patience = 10 * time.Second

// Watcher watches directories with inotify. A call of Watch that hangs costs one goroutine, however
// often Watch is called.
type Watcher struct {
	failed  func(dir string, err error)
	removed func(path string)
	changed chan struct{}
	calls   detached.Group[bool]

	mu   sync.Mutex
	dirs []string // of the last call of Watch

	hand detached.Handover // of fs
	// Only a running call of arm uses the fields below.
	fs   *fsnotify.Watcher
	on   map[string]os.FileInfo // watched paths, as they were when their watch began
	said map[string]bool        // paths that cannot be watched and were reported
}

// New returns a Watcher that watches nothing yet. The caller has to close it.
//
// failed is called if a directory cannot be watched. It is not called again for the directory
// until the directory could be watched. dir is "" if all directories are concerned, as after an
// overflow of the kernel's event queue. removed is called with each directory, and each entry of
// a directory, that was removed, even if it exists again. It is called before Changed gets a
// value, and not for renamed files. Both may be nil, and must not block.
func New(failed func(dir string, err error), removed func(path string)) *Watcher {
	if failed == nil {
		failed = func(string, error) {}
	}
	if removed == nil {
		removed = func(string) {}
	}
	return &Watcher{failed: failed, removed: removed, changed: make(chan struct{}, 1), on: map[string]os.FileInfo{}, said: map[string]bool{}}
}

// Close ends the watches. If a call hangs, they end when it returns.
func (w *Watcher) Close() {
	w.hand.Release(func() {
		if w.fs != nil {
			_ = w.fs.Close()
		}
	})
}

// Changed gets a value after changes of the directories, of their entries, and of the directories
// above them. It holds at most one: whoever receives it reads the directories.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Watch sets which directories are watched, by absolute clean paths. It has to be called before
// each read of the directories, so that no change after the read is missed. A missing directory
// is watched by its nearest existing parent, and a directory behind a link also by the link.
// Watch returns true if all are watched. Otherwise the caller has to read the directories again
// from time to time. Watch blocks for at most 10 s.
func (w *Watcher) Watch(ctx context.Context, dirs ...string) bool {
	w.mu.Lock()
	w.dirs = slices.Clone(dirs)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := w.calls.Do(ctx, "arm", func() (all bool, err error) {
		w.hand.Use(func() { all = w.arm(dirs) })
		return all, nil
	})
	return err == nil && all
}

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

// fail reports a path that cannot be watched, once.
func (w *Watcher) fail(path string, err error) {
	if !w.said[path] {
		w.failed(path, err)
	}
	w.said[path] = true
}

// wanted returns the paths to watch for directories: the directories themselves, the parents of
// links that lead to them, and for a missing one its nearest existing parent.
func wanted(dirs []string) map[string]bool {
	want := map[string]bool{}
	for _, dir := range dirs {
		// A link is replaced by a rename, of which only the directory around it gets an event.
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

// watch changes the watches to those of wanted. It reports whether all of these exist.
func (w *Watcher) watch(wanted map[string]bool) bool {
	live := w.fs.WatchList() // the watch of a directory ends with the directory
	for path, was := range w.on {
		now, err := os.Stat(path)
		// A new directory may have the inode of the former one.
		if !wanted[path] || err != nil || !os.SameFile(was, now) || !slices.Contains(live, path) {
			_ = w.fs.Remove(path) // it may have ended with its directory
			delete(w.on, path)
		}
	}
	all := true
	for path := range wanted {
		if w.on[path] != nil {
			continue
		}
		// The state is read before the watch begins: if the directory is replaced in between, the
		// next call finds a difference.
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

// listen turns events into values of Changed.
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
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// take returns false for an event of a sibling of the directories or of their parents.
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
