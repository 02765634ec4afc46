package fsgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// batch is how many names of a directory are read at a time.
const batch = 1024

// Apply gives the files below r.Root, and at last the root, to the group.
func Apply(ctx context.Context, r Request) error {
	if r.GID < 0 || r.GID >= math.MaxUint32 {
		return fmt.Errorf("fsGroup %d, want 0 to %d", r.GID, uint32(math.MaxUint32-1))
	}
	root, err := openDir(unix.AT_FDCWD, r.Root, r.Root)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	st, err := stat(root)
	if err != nil {
		return err
	}
	if r.OnRootMismatch && r.Matches(modeOf(st.Mode), int64(st.Gid)) {
		return nil
	}
	w := &walker{Request: r, ctx: ctx, next: time.Now().Add(firstProgress)}
	if err := w.dir(root, st.Dev); err != nil {
		return errors.Join(err, w.failed.err())
	}
	if w.failed.n > 0 {
		// The root keeps its mismatch, so that the next walk is not left out.
		return w.failed.err()
	}
	return w.own(root, st)
}

func openDir(at int, name, shown string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: shown, Err: err}
	}
	return os.NewFile(uintptr(fd), shown), nil
}

func stat(f *os.File) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st, nil
}

// dir does what is in a directory, but not the directory. Its error ends the
// walk.
func (w *walker) dir(d *os.File, dev uint64) error {
	for {
		names, err := d.Readdirnames(batch)
		for _, name := range names {
			if err := w.entry(d, name, dev); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.failed.add(err)
			return nil
		}
	}
}

// entry does one name of a directory, and what is below it. What is gone
// meanwhile does not matter.
func (w *walker) entry(d *os.File, name string, dev uint64) error {
	if err := w.step(); err != nil {
		return err
	}
	shown := filepath.Join(d.Name(), name)
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		w.failed.add(&os.PathError{Op: "open", Path: shown, Err: err})
		return nil
	}
	f := os.NewFile(uintptr(fd), shown)
	defer func() { _ = f.Close() }()
	st, err := stat(f)
	if err != nil {
		w.failed.add(err)
		return nil
	}
	if st.Dev != dev {
		return nil // another file system is mounted here: another volume
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		sub, err := openDir(fd, ".", shown)
		if err != nil {
			w.failed.add(err)
			return nil
		}
		failed := w.failed.n
		err = w.dir(sub, dev)
		_ = sub.Close()
		if err != nil {
			return err
		}
		if w.failed.n > failed {
			return nil
		}
	}
	w.failed.add(w.own(f, st))
	return nil
}

// own gives one file to the group. The owner comes first: changing it takes
// bits away.
func (w *walker) own(f *os.File, st unix.Stat_t) error {
	const flags = unix.AT_EMPTY_PATH | unix.AT_SYMLINK_NOFOLLOW
	is := modeOf(st.Mode)
	want := w.Mode(is)
	if int64(st.Gid) != w.GID {
		if err := unix.Fchownat(int(f.Fd()), "", -1, int(w.GID), flags); err != nil {
			return &os.PathError{Op: "chown", Path: f.Name(), Err: err}
		}
		if is&fs.ModeSymlink == 0 {
			now, err := stat(f)
			if err != nil {
				return err
			}
			is = modeOf(now.Mode)
		}
	}
	if is == want {
		return nil
	}
	// An O_PATH descriptor has no fchmod(2); its name in /proc is the file
	// itself and no link that could be turned elsewhere.
	if err := os.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), want); err != nil {
		return &os.PathError{Op: "chmod", Path: f.Name(), Err: errors.Unwrap(err)}
	}
	return nil
}

// modeOf is a mode of stat(2) as package fs has it, as far as it matters here.
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
