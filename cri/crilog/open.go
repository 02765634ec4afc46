package crilog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/internal/slowfile"
)

const (
	// answer is how long a copy waits for one call of the file system. Calls take milliseconds, or
	// seconds under load.
	answer = 10 * time.Second
	// maxHung is the largest number of calls, for all copies, that may wait for file systems that do
	// not answer. Each takes a goroutine and a thread.
	maxHung = 256
	// maxNames is how many names in the directory of a log are read: the kubelet keeps 5 files of a
	// container (containerLogMaxFiles), but a pod that mounts the directory can make any number.
	maxNames = 10_000
)

// calls runs the file system calls of all copies, one at a time for each log.
var calls = &detached.Queue{Limit: maxHung}

// disk makes calls of the file system that has the log.
type disk struct {
	slowfile.System
	root string // Options.Root
	path string // path of the log
}

func newDisk(ctx context.Context, root, path string) *disk {
	return &disk{System: slowfile.System{Context: ctx, Calls: calls, Key: path, Answer: answer}, root: root, path: path}
}

// open opens the log or another regular file in its directory. It follows no link to the file.
func (d *disk) open(path string) (*slowfile.File, error) {
	root := d.root
	return d.Open(func() (*os.File, error) { return openRegular(root, path) })
}

// openRegular opens a regular file for reading. If root is not "", path has to be below root, and
// no symbolic link between root and the file is followed.
func openRegular(root, path string) (*os.File, error) {
	if root == "" {
		return safefile.Open(path)
	}
	within, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(within) {
		return nil, fmt.Errorf("log %s is not in %s", path, root)
	}
	return safefile.OpenIn(root, within)
}

// names lists the directory of the log, at most maxNames names.
func (d *disk) names() ([]string, error) {
	root, dir := d.root, filepath.Dir(d.path)
	return slowfile.Call(&d.System, func() ([]string, error) { return namesIn(root, dir) })
}

func namesIn(root, dir string) ([]string, error) {
	if root == "" {
		root = dir
	}
	within, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	held, err := safefile.OpenDir(root, within)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }()
	entries, err := held.Entries(maxNames)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// look returns the FileInfo of the current file of the log.
func (d *disk) look() (fs.FileInfo, error) {
	path := d.path
	return slowfile.Call(&d.System, func() (fs.FileInfo, error) { return os.Lstat(path) })
}

// watch returns a watcher of the log's directory, or nil if the system cannot provide one.
func (d *disk) watch() *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	dir := filepath.Dir(d.path)
	if _, err := slowfile.Call(&d.System, func() (bool, error) { return true, w.Add(dir) }); err != nil {
		go func() { _ = w.Close() }() // it may wait for Add
		return nil
	}
	return w
}
