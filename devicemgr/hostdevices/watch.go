//go:build linux

package hostdevices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/wake"
)

// watcher tells when something has changed in directories.
type watcher interface {
	// watch sets the directories, after which every change is told. It returns an error if not all
	// of them are watched.
	watch(dirs watched) error
	// changed has a value after changes, at most one.
	changed() <-chan struct{}
	close()
}

// nameEvents are the events of names that come and go. internal/dirwatch is not used, since fsnotify asks
// for writes too: most kernels report each write to a device node in the directory, such as
// /dev/null.
const nameEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// inotify is the watcher of the kernel.
type inotify struct {
	fd      int
	file    *os.File
	tell    wake.Signal
	watches map[string]int // by path
}

func newInotify() (watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), tell: wake.New(), watches: map[string]int{}}
	go w.read()
	return w, nil
}

// read turns events into values of changed, until close.
func (w *inotify) read() {
	buf := make([]byte, 16*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		if _, err := w.file.Read(buf); err != nil {
			return
		}
		w.tell.Set()
	}
}

func (w *inotify) changed() <-chan struct{} { return w.tell }
func (w *inotify) close()                   { _ = w.file.Close() }

// watch watches a missing directory by its nearest existing parent.
func (w *inotify) watch(dirs watched) error {
	now := map[string]int{}
	var errs []error
	for dir := range dirs {
		for {
			events := uint32(nameEvents | unix.IN_ONLYDIR)
			if dirs[dir] { // not of the parent of such a directory
				events |= unix.IN_CLOSE_WRITE
			}
			wd, err := unix.InotifyAddWatch(w.fd, dir, events)
			if err == nil {
				now[dir] = wd
				break
			}
			if parent := filepath.Dir(dir); parent != dir && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)) {
				dir = parent
				continue
			}
			errs = append(errs, &fs.PathError{Op: "watch", Path: dir, Err: err})
			break
		}
	}
	kept := map[int]bool{}
	for _, wd := range now {
		kept[wd] = true
	}
	for _, wd := range w.watches {
		if !kept[wd] {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd)) // the kernel has removed it with its directory
		}
	}
	w.watches = now
	return errors.Join(errs...)
}
