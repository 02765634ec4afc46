package rmtree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxOpen is how many directories of one path are open at a time. What is
// deeper is moved up first: whoever filled the tree had no such limit.
const maxOpen = 64

// maxErrors is how many errors of one tree are told.
const maxErrors = 8

// tree is one removal.
type tree struct {
	dirsOnly bool
	dev      uint64 // of the file system that dir is on
	top      *os.File
	moved    int // deep directories that were moved up into top
	errs     []error
	dropped  int
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
	var st unix.Stat_t
	if err := unix.Fstat(int(parent.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: parent.Name(), Err: err}
	}
	t := &tree{dirsOnly: dirsOnly, dev: uint64(st.Dev)} //nolint:unconvert // 32 bits on some machines
	t.remove(parent, filepath.Base(dir), 0)
	if t.dropped > 0 {
		t.errs = append(t.errs, fmt.Errorf("and %d more errors", t.dropped))
	}
	return errors.Join(t.errs...)
}

// remove removes name and what is below it.
func (t *tree) remove(parent *os.File, name string, depth int) {
	path := filepath.Join(parent.Name(), name)
	d, err := t.open(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if t.dirsOnly {
			t.fail("remove", path, ErrNotEmpty)
			return
		}
		t.unlink(parent, name, 0)
		return
	case errors.Is(err, unix.EXDEV):
		t.fail("remove", path, ErrMountPoint)
		return
	case err != nil:
		t.fail("open", path, err)
		return
	}
	if t.top == nil {
		t.top = d
	}
	t.empty(d, depth)
	if t.top == d {
		t.deep(d)
	}
	_ = d.Close()
	t.unlink(parent, name, unix.AT_REMOVEDIR)
}

// empty removes what is in d.
func (t *tree) empty(d *os.File, depth int) {
	names, err := d.Readdirnames(-1)
	if err != nil {
		t.fail("read", d.Name(), err)
	}
	for _, name := range names {
		if depth >= maxOpen && !t.dirsOnly && t.moveUp(d, name) {
			continue
		}
		t.remove(d, name, depth+1)
	}
}

// moveUp moves a directory to the top of the tree. A mount point cannot be
// moved, and what is no directory need not.
func (t *tree) moveUp(d *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || uint64(st.Dev) != t.dev { //nolint:unconvert // 32 bits on some machines
		return false
	}
	to := t.movedName(t.moved)
	if err := unix.Renameat2(int(d.Fd()), name, int(t.top.Fd()), to, unix.RENAME_NOREPLACE); err != nil {
		return false
	}
	t.moved++
	return true
}

func (*tree) movedName(n int) string { return "..deep." + strconv.Itoa(n) }

// deep removes what was moved up, and what that turns up in turn.
func (t *tree) deep(top *os.File) {
	for n := 0; n < t.moved; n++ {
		t.remove(top, t.movedName(n), 1)
	}
}

// open opens a directory that no mount point and no link leads to.
func (t *tree) open(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	path := filepath.Join(parent.Name(), name)
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	// A sandbox that does not know the call may say either.
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	if fd, err = unix.Openat(int(parent.Fd()), name, flags, 0); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if uint64(st.Dev) != t.dev { //nolint:unconvert // 32 bits on some machines
		_ = unix.Close(fd)
		return nil, unix.EXDEV
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (t *tree) unlink(parent *os.File, name string, flags int) {
	err := unix.Unlinkat(int(parent.Fd()), name, flags)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.EBUSY): // unlink(2), rmdir(2): it is a mount point
		t.fail("remove", filepath.Join(parent.Name(), name), ErrMountPoint)
	case errors.Is(err, unix.ENOTEMPTY) && len(t.errs) > 0: // what is in it has been told
	default:
		t.fail("remove", filepath.Join(parent.Name(), name), err)
	}
}

func (t *tree) fail(op, path string, err error) {
	if len(t.errs) >= maxErrors {
		t.dropped++
		return
	}
	t.errs = append(t.errs, &os.PathError{Op: op, Path: path, Err: err})
}
