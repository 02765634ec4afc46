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

// The kinds of [At].
const (
	None    Kind = iota // no file
	Empty               // an empty file, for the mount of a namespace
	Pinned              // a namespace
	Foreign             // anything else, such as another mount
)

// At is the result of [Look].
type At struct {
	Kind Kind
	// ID distinguishes namespaces that exist at the same time. It is 0 unless Kind is Pinned.
	ID uint64
}

// ErrForeign means that the file at the path is not a pinned namespace of the requested
// type.
var ErrForeign = errors.New("not a namespace of that type")

// Look returns the kind of file at path. A namespace of another type than the
// CLONE_NEW constant space is Foreign. Look opens only namespaces: it examines an
// O_PATH descriptor first.
func Look(path string, space int) (At, error) {
	held, at, err := look(path, space)
	if held != nil {
		_ = held.Close()
	}
	return at, err
}

// OpenPinned opens the namespace of the type space at path. The caller has to close
// it. If there is none, the error is fs.ErrNotExist.
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

// look returns the kind of file at path, and an open namespace if there is one.
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
			return nil, At{Kind: Foreign}, nil // any other file
		}
		return f, At{Pinned, st.Ino}, nil
	case st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0 && st.Nlink == 1:
		return nil, At{Kind: Empty}, nil
	default:
		return nil, At{Kind: Foreign}, nil
	}
}

// Remove unmounts the namespace of this type and ID, and deletes the empty file under it. If id
// is 0, it removes any namespace of this type. Processes in the namespace stay in it. It is not
// an error if there is no file. Any other file stays, and the error is [ErrForeign].
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
