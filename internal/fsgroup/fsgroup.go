package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Permission bits that the group gets, as in the kubelet: to read and write, only to
// read, and to enter directories.
const (
	rwMask   = fs.FileMode(0o660)
	roMask   = fs.FileMode(0o440)
	execMask = fs.FileMode(0o110)
)

// maxErrors is the maximum number of errors of single files in the result.
const maxErrors = 5

// The times of progress reports, as in the kubelet.
const (
	firstProgress = 30 * time.Second
	nextProgress  = time.Minute
)

// Request describes a change of the group of a volume's files.
type Request struct {
	// Root is the volume's directory; it must not be a link.
	Root string
	// GID is the group, 0 to 2^32-2.
	GID int64
	// ReadOnly denies the group to write.
	ReadOnly bool
	// OnRootMismatch skips the walk if the root already matches
	// (fsGroupChangePolicy); otherwise every file is checked.
	OnRootMismatch bool
	// Progress is called with the number of files so far, unless it is nil. The first call comes
	// after 30 s, with first set to true. Further calls come each minute. Progress must not
	// block, since the walk waits for it.
	Progress func(files int64, first bool)
}

// mask returns the mode bits that files need.
func (r Request) mask() fs.FileMode {
	if r.ReadOnly {
		return roMask
	}
	return rwMask
}

// Mode returns the mode that a file or directory with the mode current needs. For a link it
// returns current, since links have no permissions.
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

// failures collects the errors of files.
type failures struct {
	errs []error
	n    int
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

// walker counts the changed files.
type walker struct {
	Request
	ctx    context.Context
	failed failures
	done   int64
	next   time.Time
	told   bool
}

// step is called for each file; its error ends the walk.
func (w *walker) step() error {
	w.done++
	if w.Progress != nil && !time.Now().Before(w.next) {
		w.Progress(w.done, !w.told)
		w.told = true
		w.next = time.Now().Add(nextProgress)
	}
	return w.ctx.Err()
}
