package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/safefile"
)

// Access to the directories of logs. A file system may hang, and a pod that mounts its logs may
// put links and other files in their place. So all access goes through this file or package
// safefile.

const (
	// lookTimeout is the timeout for reading a log's size. Sizes are read one after the other.
	lookTimeout = time.Second
	// turnTimeout is the timeout of a rotation, without the runtime's calls.
	turnTimeout = time.Minute
	// packTimeout is the timeout of a compression: maxPacked bytes at 7 MB a second.
	packTimeout = 10 * time.Minute
	// ending is how long calls under way may still take after ctx has ended.
	ending = 5 * time.Second
	// maxPacked is the largest file that is compressed, in bytes: some hundred times the usual
	// size of a log.
	maxPacked = 4 << 30
	// maxNames limits the names that are read in a log directory. The kubelet keeps 5 files of a
	// container (containerLogMaxFiles), but a pod that mounts the directory can create any
	// number.
	maxNames = 10_000
	// maxHung limits the calls that may hang at a time.
	maxHung = 256
)

// onDisk calls f after the previous call with the same key has ended. It waits for f for at most
// limit, and for at most ending once ctx has ended. f may continue after onDisk has returned, so
// f must not change anything that the caller uses.
func onDisk[T any](ctx context.Context, m *Manager, key string, limit time.Duration, f func() (T, error)) (T, error) {
	// After ctx has ended, wait a little for calls under way: if the process exits between a
	// rename and the runtime's answer, the container has no log with its name.
	wait, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("file system did not answer within %v", limit))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// The inner function stops the timer when f has ended in time.
		t := time.AfterFunc(ending, cancel)
		context.AfterFunc(wait, func() { t.Stop() })
	})
	defer stop()
	return detached.Next(wait, &m.disk, key, f)
}

// openDir opens the directory of a log. Pods may be able to write below the directory of all
// pods' logs, three levels above the file: no link below it is followed.
func openDir(path string) (*safefile.Dir, error) {
	dir := filepath.Dir(path)
	pod := filepath.Dir(dir)
	return safefile.OpenDir(filepath.Dir(pod), filepath.Join(filepath.Base(pod), filepath.Base(dir)))
}

// statLog returns the FileInfo of a log; an error if it is no regular file.
func statLog(path string) (fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "stat", Path: path, Err: fmt.Errorf("%w but of mode %v", safefile.ErrNotRegular, fi.Mode().Type())}
	}
	return fi, err
}

// fileNames lists a directory, at most maxNames names. With more names, a rotation removes fewer
// old files.
func fileNames(dir *safefile.Dir) ([]string, error) {
	entries, err := dir.Entries(maxNames)
	if err != nil && !errors.Is(err, safefile.ErrTooMany) {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// create creates the file for a compression. An existing file, such as one from a crash, is
// removed.
func create(dir *safefile.Dir, name string, mode os.FileMode) (*os.File, error) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dir.Create(name, mode)
}
