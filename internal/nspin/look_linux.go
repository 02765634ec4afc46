package nspin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Kind describes what there is at a path.
type Kind uint8

// The kinds of an [At].
const (
	None    Kind = iota // there is nothing
	Empty               // an empty file, to bind a namespace to
	Pinned              // a namespace
	Foreign             // anything else, such as another mount
)

// At is what there is at a path where a namespace may be.
type At struct {
	Kind Kind
	// ID distinguishes namespaces that exist at the same time; 0 unless Kind is
	// Pinned.
	ID uint64
}

// ErrForeign means that something is at the path that was not pinned there.
var ErrForeign = errors.New("not a namespace of that type")

// Look returns what is at path. A namespace of another type than that of the
// CLONE_NEW constant is Foreign. It takes hold of what is there before it opens
// anything.
func Look(path string, space int) (At, error) {
	held, at, err := look(path, space)
	if held != nil {
		_ = held.Close()
	}
	return at, err
}

// OpenPinned opens the namespace of a type that is pinned at path. The file is
// the caller's; an fs.ErrNotExist if there is none.
func OpenPinned(path string, space int) (*os.File, error) {
	f, at, err := look(path, space)
	switch {
	case err != nil:
		return nil, err
	case at.Kind == None || at.Kind == Empty:
		return nil, pathError("open", path, fs.ErrNotExist)
	case at.Kind != Pinned:
		return nil, pathError("open", path, ErrForeign)
	}
	return f, nil
}

// look returns an open namespace if there is one.
func look(path string, space int) (*os.File, At, error) {
	held, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, At{}, nil
	}
	if err != nil {
		return nil, At{}, pathError("open", path, err)
	}
	defer func() { _ = unix.Close(held) }()
	var st unix.Stat_t
	if err := unix.Fstat(held, &st); err != nil {
		return nil, At{}, pathError("stat", path, err)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(held, &on); err != nil {
		return nil, At{}, pathError("statfs", path, err)
	}
	switch {
	case on.Type == unix.NSFS_MAGIC:
		f, err := Open(fmt.Sprintf("/proc/self/fd/%d", held))
		if err != nil {
			return nil, At{}, err
		}
		kind, err := Control(f, func(fd int) (int, error) { return unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE) })
		if err != nil || kind != space {
			_ = f.Close()
			return nil, At{Kind: Foreign}, nil // whatever it is
		}
		return f, At{Pinned, st.Ino}, nil
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && st.Nlink == 1:
		return nil, At{Kind: Empty}, nil
	default:
		return nil, At{Kind: Foreign}, nil
	}
}

// Remove unmounts the namespace of that type and ID, or any of that type if id
// is 0, and removes the empty file below it. Who is inside stays inside.
// Nothing there is no error; anything else stays, with an [ErrForeign].
func Remove(path string, space int, id uint64) error {
	for range 2 { // the namespace, the file below it
		at, err := Look(path, space)
		switch {
		case err != nil:
			return err
		case at.Kind == None:
			return nil
		case at.Kind == Pinned && (id == 0 || at.ID == id):
			err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return pathError("unmount", path, err)
			}
		case at.Kind == Empty:
			// A mount of somebody else's empty file makes this an EBUSY.
			if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
				return pathError("remove", path, err)
			}
			return nil
		default:
			return pathError("remove", path, ErrForeign)
		}
	}
	return pathError("remove", path, ErrForeign) // more than one mount
}
