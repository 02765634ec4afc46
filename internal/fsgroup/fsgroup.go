package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Permission bits that files get, as in the kubelet: for files the group may write, for
// files the group may only read, and in addition for directories.
const (
	rwMask   = fs.FileMode(0o660)
	roMask   = fs.FileMode(0o440)
	execMask = fs.FileMode(0o110)
)

// maxErrors is the maximum number of errors of single files in the result.
const maxErrors = 5

// The kubelet's times until the first progress report and between further reports.
const (
	firstProgress = 30 * time.Second
	nextProgress  = time.Minute
)

// Request describes a change of the group of a volume's files.
type Request struct {
	// Root is the volume's directory. It must not be a symbolic link.
	Root string
	// GID is the group, 0 to 2^32-2.
	GID int64
	// ReadOnly gives the group read permission only.
	ReadOnly bool
	// OnRootMismatch skips the walk if the root already matches
	// (fsGroupChangePolicy); otherwise every file is checked.
	OnRootMismatch bool
	// Progress, unless nil, is called with the number of files that the walk has visited: after
	// 30 s with first set to true, then every minute. The walk waits for Progress to return.
	Progress func(files int64, first bool)
}

// mask returns the permission bits that every file needs.
func (r Request) mask() fs.FileMode {
	if r.ReadOnly {
		return roMask
	}
	return rwMask
}

// Mode returns the mode that a file or directory with the mode current needs. For a symbolic link
// it returns current, since links have no permissions.
func (r Request) Mode(current fs.FileMode) fs.FileMode {
	switch {
	case current&fs.ModeSymlink != 0:
		return current
	case current.IsDir():
		return current | r.mask() | execMask | fs.ModeSetgid
	}
	return current | r.mask()
}

// Matches reports whether a root has the required mode and group, so that
// OnRootMismatch skips the walk.
func (r Request) Matches(mode fs.FileMode, gid int64) bool {
	return mode.IsDir() && gid == r.GID && r.Mode(mode) == mode
}

// failures collects the errors of single files.
type failures struct {
	errs []error // the first maxErrors
	n    int     // number of all errors
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	if f.n++; f.n <= maxErrors {
		f.errs = append(f.errs, err)
	}
}

func (f *failures) err() error {
	if f.n > maxErrors {
		return errors.Join(append(f.errs, fmt.Errorf("and %d more files", f.n-maxErrors))...)
	}
	return errors.Join(f.errs...)
}

// walker counts the visited files and reports the progress.
type walker struct {
	Request
	ctx    context.Context
	failed failures
	done   int64     // number of visited files
	next   time.Time // of the next progress report
	told   bool      // the first report was made
}

// step counts a file and reports the progress if a report is due. It returns the error of ctx,
// which ends the walk.
func (w *walker) step() error {
	w.done++
	if w.Progress != nil && !time.Now().Before(w.next) {
		w.Progress(w.done, !w.told)
		w.told = true
		w.next = time.Now().Add(nextProgress)
	}
	return w.ctx.Err()
}
