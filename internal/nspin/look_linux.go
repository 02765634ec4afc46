package nspin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Kind is the kind of file at a path.
type Kind uint8

// The kinds of files.
const (
	None    Kind = iota // no file
	Empty               // an empty file: a mount point for a namespace
	Pinned              // a mounted namespace of the requested type
	Foreign             // anything else, such as another mount
)

// At is the result of [Look].
type At struct {
	Kind Kind
	// ID identifies a namespace among those that exist at the same time. It is 0 unless Kind is
	// Pinned.
	ID uint64
}

// ErrForeign means that the file at the path is not a pinned namespace of the requested
// type.
var ErrForeign = errors.New("not a namespace of that type")

// Look returns the kind of the file at path. space is the requested type of namespace, a
// CLONE_NEW constant; a namespace of another type is Foreign. Look opens no file that is
// not a namespace: it examines an O_PATH descriptor first.
func Look(path string, space int) (At, error) {
	held, at, err := look(path, space)
	if held != nil {
		_ = held.Close()
	}
	return at, err
}

// OpenPinned opens the namespace of the type space that is mounted at path. The caller has
// to close the file. It returns fs.ErrNotExist if there is no file or only an empty one,
// and [ErrForeign] if there is another file.
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

// look returns the kind of the file at path and, if the kind is Pinned, the open namespace.
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
			return nil, At{Kind: Foreign}, nil
		}
		return f, At{Pinned, st.Ino}, nil
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && st.Nlink == 1:
		return nil, At{Kind: Empty}, nil
	default:
		return nil, At{Kind: Foreign}, nil
	}
}

// Remove unmounts the namespace at path if it has the type space and the ID id, and deletes the empty
// file under the mount. If id is 0, it removes any namespace of the type. Processes in the namespace
// stay in it. A missing file is not an error. Remove leaves any other file in place and returns
// [ErrForeign].
func Remove(path string, space int, id uint64) error {
	for range 2 { // first the mount, then the file under it
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
			// EBUSY: another process has mounted an empty file here.
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
