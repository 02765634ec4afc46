package pluginmgr

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// identity tells one socket from another that was made later at the same path.
type identity struct {
	device, inode uint64
	born          int64 // nanoseconds; what the filesystem knows of it
}

// look finds the sockets in a directory and those below. Names that begin with
// a dot, and links, are passed over; so is what disappears meanwhile.
func look(dir string) (map[string]identity, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	found := map[string]identity{}
	err := walk(dir, func(path string, e fs.DirEntry) {
		if e.Type()&fs.ModeSocket == 0 {
			return
		}
		if id, err := identify(path); err == nil {
			found[path] = id
		}
	})
	return found, err
}

// walk visits what is in a directory and below. Directories below that cannot
// be read are passed over.
func walk(dir string, visit func(path string, e fs.DirEntry)) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil //nolint:nilerr // a part that cannot be read is no reason to forget the others
		case path == dir:
		case strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		visit(path, e)
		return nil
	})
}

// watcher has the kernel tell of changes in a directory and below. It says only
// that there are some: what they are is found by looking.
type watcher struct {
	fs   *fsnotify.Watcher
	wake chan struct{}
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
	w := &watcher{fs: f, wake: make(chan struct{}, 1)}
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
			case err, ok := <-f.Errors: // an overflow among them
				if !ok {
					return
				}
				log.Warn("changes of the plugins' directory may have been missed", zap.Error(err))
			}
			if err := w.add(dir); err != nil { // new directories too
				log.Warn("a directory of plugins is not watched", zap.Error(err))
			}
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	})
	return w, nil
}

// add watches a directory and those below. Watching one twice is no harm.
func (w *watcher) add(dir string) error {
	var errs []error
	err := walk(dir, func(path string, e fs.DirEntry) {
		if e.IsDir() {
			if err := w.fs.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	})
	return errors.Join(append(errs, err)...)
}

func (w *watcher) close() {
	_ = w.fs.Close()
	w.wg.Wait()
}
