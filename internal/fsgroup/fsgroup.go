package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Permission bits that a group needs, the kubelet's: read and write, or read
// only, and for directories to be entered.
const (
	rwMask   = fs.FileMode(0o660)
	roMask   = fs.FileMode(0o440)
	execMask = fs.FileMode(0o110)
)

// maxErrors is how many errors of single files are told.
const maxErrors = 5

// When progress is told; the kubelet's.
const (
	firstProgress = 30 * time.Second
	nextProgress  = time.Minute
)

// Request describes which files belong to whom.
type Request struct {
	// Root is the volume's directory; it is no link.
	Root string
	// GID is the group, 0 to 2^32-2.
	GID int64
	// ReadOnly keeps the group from writing.
	ReadOnly bool
	// OnRootMismatch does nothing if the root is right already
	// (fsGroupChangePolicy); else every file is looked at.
	OnRootMismatch bool
	// Progress, if not nil, is told how many files are done, after 30 s and
	// each minute after that; first says that it is the first time. It is
	// called from the walk, and shall not block.
	Progress func(files int64, first bool)
}

// mask are the bits that files need.
func (r Request) mask() fs.FileMode {
	if r.ReadOnly {
		return roMask
	}
	return rwMask
}

// Mode is what a file or directory has to have, given what it has. Links have
// no mode of their own.
func (r Request) Mode(is fs.FileMode) fs.FileMode {
	switch {
	case is&fs.ModeSymlink != 0:
		return is
	case is.IsDir():
		return is | r.mask() | execMask | fs.ModeSetgid
	}
	return is | r.mask()
}

// Matches reports whether a root is right, so that OnRootMismatch does nothing.
func (r Request) Matches(mode fs.FileMode, gid int64) bool {
	return mode.IsDir() && gid == r.GID && r.Mode(mode) == mode
}

// failures are the errors of single files.
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

// walker counts what is done.
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
