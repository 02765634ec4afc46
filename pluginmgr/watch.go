package pluginmgr

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/wake"
)

// identity distinguishes a socket from a later one at the same path.
type identity struct {
	device, inode uint64
	born          int64 // birth time in Unix nanoseconds, with the precision of the file system
}

// Limits of the directory.
const (
	// maxSockets limits the sockets, maxEntries the directory entries of a scan, and
	// maxDepth the depth of directories.
	maxSockets = 1024
	maxEntries = 1 << 14
	maxDepth   = 8
	// maxErrors limits the directories in an error about those that cannot be watched.
	maxErrors = 4
	// settle is the shortest time between two scans because of notifications.
	settle = 100 * time.Millisecond
)

// errTooMuch means that a scan reached a limit before its end.
var errTooMuch = errors.New("directory has too many entries; the rest are ignored")

// look returns the sockets in a directory and in its subdirectories, except links and names
// that begin with a dot. If a limit is reached, it returns the sockets found so far and an
// errTooMuch.
func look(dir string) (map[string]identity, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	found := map[string]identity{}
	tooMany := false
	err := walk(dir, func(path string, e fs.DirEntry) {
		if e.Type()&fs.ModeSocket == 0 {
			return
		}
		if len(found) >= maxSockets {
			tooMany = true
			return
		}
		if id, err := identify(path); err == nil {
			found[path] = id
		}
	})
	if err == nil && tooMany {
		err = fmt.Errorf("%w: more than %d sockets", errTooMuch, maxSockets)
	}
	return found, err
}

// walk calls visit for the entries of a directory and of its subdirectories, in the order
// of names, up to the limits. Subdirectories that cannot be read are left out.
func walk(dir string, visit func(path string, e fs.DirEntry)) error {
	w := walker{visit: visit, left: maxEntries}
	if err := w.walk(dir, 0); err != nil {
		return err
	}
	if w.missed {
		return fmt.Errorf("%w: want at most %d entries, and %d directories within each other", errTooMuch, maxEntries, maxDepth)
	}
	return nil
}

type walker struct {
	visit  func(path string, e fs.DirEntry)
	left   int  // number of entries that may still be read
	missed bool // entries beyond a limit were left out
}

func (w *walker) walk(dir string, depth int) error {
	entries, err := safefile.Entries(dir, w.left)
	if errors.Is(err, safefile.ErrTooMany) {
		w.missed, err = true, nil
	}
	if err != nil {
		return err
	}
	w.left -= len(entries)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		w.visit(path, e)
		switch {
		case !e.IsDir():
		case depth == maxDepth:
			w.missed = true
		default:
			_ = w.walk(path, depth+1) // continue if a subdirectory cannot be read
		}
	}
	return nil
}

// watcher watches a directory and its subdirectories for changes, with the kernel's
// notifications. It reports only that something changed; a scan finds out what.
type watcher struct {
	fs   *fsnotify.Watcher
	wake wake.Signal
	done chan struct{} // closed by close
	wg   sync.WaitGroup
}

func watch(dir string, log *zap.Logger) (*watcher, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watcher{fs: f, wake: wake.New(), done: make(chan struct{})}
	if err := w.add(dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.wg.Go(func() {
		for {
			select {
			case e, ok := <-f.Events:
				if !ok {
					return
				}
				if !e.Has(fsnotify.Create) && !e.Has(fsnotify.Remove) && !e.Has(fsnotify.Rename) {
					continue
				}
			case err, ok := <-f.Errors: // including an overflow of the queue
				if !ok {
					return
				}
				log.Warn("event queue of plugin directory overflowed or failed; reading the directory again", zap.Error(err))
			}
			if err := w.add(dir); err != nil { // also watches new directories
				log.Warn("failed to watch directory of plugins", zap.Error(err))
			}
			w.wake.Set()
			// Limits the rate of scans of a directory that changes permanently. Meanwhile, events
			// wait in the kernel's queue, which reports an overflow.
			select {
			case <-w.done:
			case <-time.After(settle):
			}
		}
	})
	return w, nil
}

// add watches a directory and its subdirectories. Watching a directory again has no effect.
func (w *watcher) add(dir string) error {
	var errs []error
	add := func(path string) {
		if err := w.fs.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) && len(errs) < maxErrors {
			errs = append(errs, err)
		}
	}
	add(dir)
	err := walk(dir, func(path string, e fs.DirEntry) {
		if e.IsDir() {
			add(path)
		}
	})
	if errors.Is(err, errTooMuch) {
		err = nil // look returns the same error
	}
	return errors.Join(append(errs, err)...)
}

func (w *watcher) close() {
	close(w.done)
	_ = w.fs.Close()
	w.wg.Wait()
}
