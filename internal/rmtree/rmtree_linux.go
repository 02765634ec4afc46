package rmtree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
)

// maxErrors is the maximum number of errors in the result of one removal.
const maxErrors = 8

// maxAgain is the maximum number of retries in one removal. Retries are necessary if another
// process adds files to a directory that the walk has emptied, or moves the directory.
const maxAgain = 100

// tree is the state of one removal.
type tree struct {
	dirsOnly bool
	walk     *dirwalk.Walk
	emptied  uint64  // inode of the directory that the walk has left last
	again    int     // number of retries
	removed  int     // number of removed entries since the last dirwalk.Lost
	errs     []error // the first maxErrors errors
	dropped  int     // number of further errors
}

func remove(dir string, dirsOnly bool) error {
	dir = filepath.Clean(dir)
	parent, err := os.Open(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	t := &tree{dirsOnly: dirsOnly}
	t.remove(int(parent.Fd()), filepath.Base(dir), dir)
	if t.dropped > 0 {
		t.errs = append(t.errs, fmt.Errorf("and %d more errors", t.dropped))
	}
	return errors.Join(t.errs...)
}

// remove removes the entry name of the directory parent, and everything below it. path is the
// entry's path for errors.
func (t *tree) remove(parent int, name, path string) {
	w, err := dirwalk.OpenAt(parent, name, path)
	switch {
	case errors.Is(err, unix.ENOENT):
		return
	case noDirectory(err):
		if err := t.unlink(parent, name); err != nil {
			t.fail("remove", path, err)
		}
		return
	case errors.Is(err, unix.EXDEV):
		t.fail("remove", path, ErrMountPoint)
		return
	case err != nil:
		t.fail("open", path, err)
		return
	}
	defer w.Close()
	t.walk = w
	for t.empty() {
		err := rmdir(parent, name)
		if errors.Is(err, unix.ENOTEMPTY) && !w.Marked() && t.again < maxAgain {
			t.again++
			w.Rewind()
			continue
		}
		if err != nil && !(errors.Is(err, unix.ENOTEMPTY) && len(t.errs) > 0) { // ENOTEMPTY because of errors that t.errs has already
			t.fail("remove", path, err)
		}
		return
	}
}

// empty removes the content of the walk's root directory. It marks directories that keep an entry.
// It reports whether the walk was complete.
func (t *tree) empty() bool {
	w := t.walk
	stays := false
	for {
		event, err := w.Next()
		switch event {
		case dirwalk.Entry:
			t.entry()
		case dirwalk.End:
			if err != nil {
				t.keep("read", "", err)
			}
			if w.Depth() == 0 {
				return true
			}
			stays, t.emptied = w.Marked(), w.Ino()
		case dirwalk.Back:
			switch {
			case stays:
			case w.Depth() >= dirwalk.Held && !w.Marked():
				w.Rewind() // Again is not possible here
			default:
				w.Again()
			}
		case dirwalk.Lost:
			if t.removed < dirwalk.Remembered/2 {
				t.again++
			}
			t.removed = 0
			if !stays && t.again < maxAgain {
				w.Again()
			} else if !stays {
				t.keep("remove", w.Name(), errors.New("moved during the removal"))
			}
		case dirwalk.Done:
			return false
		}
	}
}

// entry removes a file or an empty directory, and enters any other directory.
func (t *tree) entry() {
	w := t.walk
	if kind := w.Type(); kind != unix.DT_DIR && kind != unix.DT_UNKNOWN {
		if err := t.unlink(w.Fd(), w.Name()); !errors.Is(err, unix.EISDIR) {
			t.done(err)
			return
		}
	}
	refused := rmdir(w.Fd(), w.Name())
	switch {
	case refused == nil, errors.Is(refused, ErrMountPoint):
		t.done(refused)
		return
	case errors.Is(refused, unix.ENOTDIR):
		t.done(t.unlink(w.Fd(), w.Name()))
		return
	}
	name := w.Name()
	switch err := w.Enter(); {
	case err == nil:
	case errors.Is(err, unix.ENOENT):
		return
	case noDirectory(err):
		t.done(t.unlink(w.Fd(), name))
		return
	case errors.Is(err, unix.EXDEV):
		t.done(ErrMountPoint)
		return
	default:
		t.keep("open", name, err)
		return
	}
	if w.Ino() != t.emptied {
		return
	}
	if t.again++; !errors.Is(refused, unix.ENOTEMPTY) || t.again >= maxAgain {
		t.keep("remove", "", refused)
	}
}

// done counts the removal of an entry, or records its error.
func (t *tree) done(err error) {
	if err != nil {
		t.keep("remove", t.walk.Name(), err)
		return
	}
	t.removed++
}

// unlink removes an entry that is not a directory. With dirsOnly it returns ErrNotEmpty instead.
func (t *tree) unlink(at int, name string) error {
	if t.dirsOnly {
		return ErrNotEmpty
	}
	return tell(unix.Unlinkat(at, name, 0))
}

func rmdir(at int, name string) error { return tell(unix.Unlinkat(at, name, unix.AT_REMOVEDIR)) }

// tell converts an error of unlinkat(2). It returns nil for a missing file, and
// ErrMountPoint for a mount point.
func tell(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY): // a mount point (unlink(2), rmdir(2))
		return ErrMountPoint
	case errors.Is(err, unix.EEXIST): // POSIX allows EEXIST in place of ENOTEMPTY
		return unix.ENOTEMPTY
	}
	return err
}

func noDirectory(err error) bool { return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) }

// keep records the error of an entry that cannot be removed. It marks the current directory, which
// then cannot be removed either.
func (t *tree) keep(op, name string, err error) {
	t.walk.Mark()
	t.fail(op, t.walk.Path(name), err)
}

func (t *tree) fail(op, path string, err error) {
	if len(t.errs) >= maxErrors {
		t.dropped++
		return
	}
	t.errs = append(t.errs, &os.PathError{Op: op, Path: path, Err: err})
}
