package cni

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
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/detached"
)

// armPatience limits the time for starting to watch directories.
const armPatience = 10 * time.Second

// watcher watches directories, which may be missing, be links, or be removed and
// created again.
type watcher struct {
	log    *zap.Logger
	events chan struct{}
	calls  detached.Group[bool]

	mu   sync.Mutex
	dirs []string // whose changes count

	hand detached.Handover // of fs
	// Only the running call uses these.
	fs   *fsnotify.Watcher
	on   map[string]os.FileInfo // watched paths, as they were when the watch began
	said map[string]bool        // paths that cannot be watched and were logged
}

func newWatcher(log *zap.Logger) *watcher {
	return &watcher{log: log, events: make(chan struct{}, 1), on: map[string]os.FileInfo{}, said: map[string]bool{}}
}

// close ends the watcher. A running call ends when it returns.
func (w *watcher) close() {
	w.hand.Release(func() {
		if w.fs != nil {
			_ = w.fs.Close()
		}
	})
}

// arm starts to watch directories, and reports whether all of them are watched. It is
// called before each read of the directories, so that no change in between is missed.
func (w *watcher) arm(ctx context.Context, dirs []string) bool {
	w.mu.Lock()
	w.dirs = slices.Clone(dirs)
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, armPatience)
	defer cancel()
	all, err := w.calls.Do(ctx, "arm", func() (all bool, err error) {
		w.hand.Use(func() { all = w.watchAll(dirs) })
		return all, nil
	})
	return err == nil && all
}

func (w *watcher) watchAll(dirs []string) bool {
	if w.fs == nil {
		f, err := fsnotify.NewBufferedWatcher(64)
		if err != nil {
			if !w.said[""] {
				w.log.Warn("failed to watch network configurations; reading them from time to time", zap.Error(err))
			}
			w.said[""] = true
			return false
		}
		w.fs = f
		go w.listen(f)
	}
	all := true
	// Repeated, since a directory may appear before its parent is watched.
	for range 8 {
		want := wanted(dirs)
		all = w.watch(want)
		if maps.Equal(want, wanted(dirs)) {
			break
		}
	}
	return all
}

// wanted returns the paths to watch for some directories: the directories themselves,
// the directories of symbolic links that lead to them, and for a missing directory its
// nearest existing parent.
func wanted(dirs []string) map[string]bool {
	want := map[string]bool{}
	for _, dir := range dirs {
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

func (w *watcher) watch(want map[string]bool) bool {
	live := w.fs.WatchList() // the watch of a directory goes with it
	for path, was := range w.on {
		now, err := os.Stat(path)
		// A new directory may have the inode of the former one.
		if !want[path] || err != nil || !os.SameFile(was, now) || !slices.Contains(live, path) {
			_ = w.fs.Remove(path)
			delete(w.on, path)
		}
	}
	all := true
	for path := range want {
		if w.on[path] != nil {
			continue
		}
		info, err := os.Stat(path)
		if err == nil {
			err = w.fs.Add(path)
		}
		if err != nil {
			all = false
			if !w.said[path] {
				w.log.Warn("failed to watch directory; reading it from time to time", zap.String("directory", path), zap.Error(err))
			}
			w.said[path] = true
			continue
		}
		delete(w.said, path)
		w.on[path] = info
	}
	for path := range w.said {
		if path != "" && !want[path] {
			delete(w.said, path)
		}
	}
	return all
}

// listen turns events into one pending notification.
func (w *watcher) listen(f *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-f.Events:
			if !ok {
				return
			}
			if !w.concerns(e.Name) {
				continue
			}
		case err, ok := <-f.Errors:
			if !ok {
				return
			}
			// This includes an overflow of the event queue: everything is read again.
			w.log.Warn("lost events of network configurations; reading them again", zap.Error(err))
		}
		select {
		case w.events <- struct{}{}:
		default:
		}
	}
}

// concerns reports whether an event is about one of the directories, a file in them, or
// a parent. Other events come from siblings, since parents are watched too.
func (w *watcher) concerns(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.dirs, func(dir string) bool {
		return path == dir || filepath.Dir(path) == dir || strings.HasPrefix(dir, path+"/")
	})
}
