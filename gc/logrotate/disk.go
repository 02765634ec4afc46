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

// Calls into the directories of logs. Two things may go wrong there that no error reports: a
// file system may not answer at all, and a pod that mounts its logs may put links and
// strange files into their place. All access goes through the functions of this file, or of
// package safefile.

const (
	// lookTimeout is how long a look at a log's size takes at most. The looks
	// are made one after the other.
	lookTimeout = time.Second
	// turnTimeout is how long a rotation takes at most, beside the runtime.
	turnTimeout = time.Minute
	// packTimeout is how long a compression takes at most: maxPacked bytes at 7
	// MB a second.
	packTimeout = 10 * time.Minute
	// ending is how much of that is left when the Manager is to end.
	ending = 5 * time.Second
	// maxPacked is the size in bytes up to which a file is compressed: some
	// hundred times the size of a log.
	maxPacked = 4 << 30
	// maxNames is how many names in the directories of logs are looked at at a
	// time: the kubelet keeps 5 files of a container (containerLogMaxFiles), but a pod
	// that mounts the directory can make any number.
	maxNames = 10_000
	// maxHung is how many logs may be on file systems that do not answer.
	maxHung = 256
)

// onDisk calls f when the call with the same key before it has ended, and waits for it no
// longer than the limit, and when ctx has ended no longer than ending. f goes on after that,
// so it must not change what the caller uses.
func onDisk[T any](ctx context.Context, m *Manager, key string, limit time.Duration, f func() (T, error)) (T, error) {
	// At the end of ctx, Run waits a little longer for what is under way: a process that
	// exits between a rename and the answer of the runtime leaves a container without a log
	// of its name.
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

// openDir holds the directory of a log. Pods may be able to write below the
// directory of all pods' logs, which is three above the file: no link below it
// is followed.
func openDir(path string) (*safefile.Dir, error) {
	dir := filepath.Dir(path)
	pod := filepath.Dir(dir)
	return safefile.OpenDir(filepath.Dir(pod), filepath.Join(filepath.Base(pod), filepath.Base(dir)))
}

// statLog looks at a log, which is a regular file.
func statLog(path string) (fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "stat", Path: path, Err: fmt.Errorf("%w but of mode %v", safefile.ErrNotRegular, fi.Mode().Type())}
	}
	return fi, err
}

// fileNames lists a directory. Of more than maxNames names it returns as many: a rotation
// then drops fewer old files than it should, but the log is rotated.
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

// create makes a file for a compression. What a crash left of an earlier one,
// or somebody put there, goes.
func create(dir *safefile.Dir, name string, mode os.FileMode) (*os.File, error) {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dir.Create(name, mode)
}
