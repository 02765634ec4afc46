package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/dirwalk"
)

// Apply changes the group and the mode of the files below r.Root, and then of r.Root. With
// OnRootMismatch it does nothing if r.Root already matches.
func Apply(ctx context.Context, r Request) error {
	if r.GID < 0 || r.GID >= math.MaxUint32 {
		return fmt.Errorf("fsGroup %d, want 0 to %d", r.GID, uint32(math.MaxUint32-1))
	}
	tree, err := dirwalk.Open(r.Root)
	if err != nil {
		return err
	}
	defer tree.Close()
	w := &applying{walker: walker{Request: r, ctx: ctx, next: time.Now().Add(firstProgress)}, tree: tree}
	st, err := w.stat(tree.Fd(), "")
	if err != nil {
		return err
	}
	if r.OnRootMismatch && r.Matches(modeOf(st.Mode), int64(st.Gid)) {
		return nil
	}
	w.dev = uint64(st.Dev) //nolint:unconvert // 32 bits on some machines
	if err := w.walk(); err != nil {
		return errors.Join(err, w.failed.err())
	}
	if w.failed.n > 0 {
		// The root keeps its wrong group, so that OnRootMismatch does not skip the next walk.
		return w.failed.err()
	}
	return w.own(tree.Fd(), "", st)
}

// applying is a walk through a volume.
type applying struct {
	walker
	tree *dirwalk.Walk
	dev  uint64
}

func (w *applying) stat(fd int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return st, w.tree.Fail("stat", name, err)
	}
	return st, nil
}

// errMoved is the error of a walk that has lost its position.
var errMoved = fmt.Errorf("directories were moved during the walk, or are more than %d levels deep", dirwalk.Remembered)

// walk walks the tree below the root. An error ends the walk.
func (w *applying) walk() error {
	for {
		event, err := w.tree.Next()
		switch event {
		case dirwalk.Entry:
			if err := w.step(); err != nil {
				return err
			}
			w.fail(w.entry())
		case dirwalk.End:
			if err != nil {
				w.fail(w.tree.Fail("read", "", err))
			}
			if w.tree.Depth() == 0 {
				return nil
			}
			if !w.tree.Marked() {
				w.fail(w.directory())
			}
		case dirwalk.Lost:
			w.fail(w.tree.Fail("walk", "", errMoved))
		case dirwalk.Back, dirwalk.Done:
		}
	}
}

// fail records an error for a file in the current directory, or for the directory itself.
// It marks the directory, so that walk does not change it or its parents.
func (w *applying) fail(err error) {
	if err != nil {
		w.tree.Mark()
		w.failed.add(err)
	}
}

// entry changes an entry that is no directory, and enters a directory. A removed entry is
// not an error.
func (w *applying) entry() error {
	name := w.tree.Name()
	fd, err := unix.Openat(w.tree.Fd(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return w.tree.Fail("open", name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	st, err := w.stat(fd, name)
	if err != nil {
		return err
	}
	if uint64(st.Dev) != w.dev { //nolint:unconvert // 32 bits on some machines
		return nil // a mount point: the mounted file system does not belong to the volume
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w.own(fd, name, st)
	}
	err = w.tree.Enter()
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil
	}
	return w.tree.Fail("open", name, err)
}

// directory changes the current directory. walk calls it after all entries.
func (w *applying) directory() error {
	st, err := w.stat(w.tree.Fd(), "")
	if err != nil {
		return err
	}
	return w.own(w.tree.Fd(), "", st)
}

// own changes the group and the mode of one file. st are the attributes of the file. The
// group comes first, since chown(2) clears bits of the mode.
func (w *applying) own(fd int, name string, st unix.Stat_t) error {
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW
	is := modeOf(st.Mode)
	want := w.Mode(is)
	if int64(st.Gid) != w.GID {
		if err := unix.Fchownat(fd, "", -1, int(w.GID), flags); err != nil {
			return w.tree.Fail("chown", name, err)
		}
		if is&fs.ModeSymlink == 0 {
			now, err := w.stat(fd, name)
			if err != nil {
				return err
			}
			is = modeOf(now.Mode)
		}
	}
	if is == want {
		return nil
	}
	// fchmod(2) does not work with an O_PATH descriptor. The descriptor's name in /proc
	// leads to the open file itself, even if its path was replaced.
	if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), want); err != nil {
		return w.tree.Fail("chmod", name, errors.Unwrap(err))
	}
	return nil
}

// modeOf converts a mode of stat(2) to a fs.FileMode. All types except directories and
// symbolic links become regular or irregular files.
func modeOf(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	default:
		mode |= fs.ModeIrregular
	}
	for bit, is := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= is
		}
	}
	return mode
}
