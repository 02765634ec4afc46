package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/safefile"
)

// kernelSpaces creates namespaces, and keeps each alive by a bind mount of its file, as
// ip-netns(8) does.
type kernelSpaces struct{}

// Make creates a namespace on a thread of its own.
func (kernelSpaces) Make(ctx context.Context, path string, owner *os.File) (uint64, error) {
	if owner != nil {
		other, err := otherUser(owner)
		if err != nil {
			return 0, err
		}
		if !other {
			owner = nil
		}
	}
	if err := nspin.ShareDir(filepath.Dir(path)); err != nil {
		return 0, err
	}
	if err := nspin.MakePoint(path); err != nil {
		return 0, err
	}
	id, err := bindNew(ctx, path, owner)
	if err != nil {
		_ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_ = unix.Unlink(path)
		return 0, err
	}
	return id, nil
}

// onFile calls f with a file's descriptor, and does not change the file's mode.
func onFile(file *os.File, f func(fd int) (int, error)) (int, error) { return nspin.Control(file, f) }

// otherUser reports whether owner is a user namespace other than the caller's.
func otherUser(owner *os.File) (bool, error) {
	kind, err := onFile(owner, func(fd int) (int, error) { return unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE) })
	if err != nil || kind != unix.CLONE_NEWUSER {
		return false, Errorf(InvalidArgument, "attachment's UserNS is %s; want an open user namespace", owner.Name())
	}
	theirs, err := owner.Stat()
	if err != nil {
		return false, err
	}
	ours, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return false, err
	}
	return !os.SameFile(theirs, ours), nil
}

// bindNew creates a namespace and mounts it at path. It checks ctx before each call that could
// wait for another process.
func bindNew(ctx context.Context, path string, owner *os.File) (id uint64, err error) {
	nspin.OnThread(func() (back bool) {
		id, back, err = onThread(ctx, path, owner)
		return back
	})
	return id, err
}

// onThread creates the namespace on the calling goroutine's locked thread. back reports whether
// the thread has returned to its original namespace. If it has not, the thread must not be used
// any more.
func onThread(ctx context.Context, path string, owner *os.File) (id uint64, back bool, err error) {
	const own = "/proc/thread-self/ns/net"
	home, err := openSpace(own)
	if err != nil {
		return 0, true, err
	}
	defer func() { _ = home.Close() }()
	var space *os.File
	if owner != nil {
		space, err = spaceOf(ctx, owner)
		if err == nil {
			defer func() { _ = space.Close() }()
			err = enter(space)
		}
	} else {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			space, err = openSpace(own)
		} else {
			err = fmt.Errorf("unshare network namespace: %w", err)
		}
		if err == nil {
			defer func() { _ = space.Close() }()
		}
	}
	if err == nil {
		err = loopbackUp()
	}
	if err == nil {
		id, err = nspin.Bind(space, path)
	}
	return id, enter(home) == nil, err
}

func enter(space *os.File) error {
	_, err := onFile(space, func(fd int) (int, error) { return 0, unix.Setns(fd, unix.CLONE_NEWNET) })
	return pathError("enter", space.Name(), err)
}

func openSpace(path string) (*os.File, error) { return nspin.Open(path) }

// loopbackUp brings the interface lo of the thread's namespace up, which gives
// it its addresses.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, lo)
	}
	if err == nil {
		lo.SetUint16(lo.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// Look opens the path with O_PATH before it checks it.
func (kernelSpaces) Look(path string) (Space, error) {
	at, err := nspin.Look(path, unix.CLONE_NEWNET)
	kinds := [...]SpaceKind{nspin.None: SpaceNone, nspin.Empty: SpaceEmpty, nspin.Pinned: SpaceNamed, nspin.Foreign: SpaceForeign}
	return Space{kinds[at.Kind], at.ID}, err
}

// Remove unmounts lazily: processes inside stay in the namespace.
func (kernelSpaces) Remove(path string, id uint64) error {
	err := nspin.Remove(path, unix.CLONE_NEWNET, id)
	if errors.Is(err, nspin.ErrForeign) {
		return pathError("remove", path, ErrForeign)
	}
	return err
}

// List returns the entries of the directory.
func (kernelSpaces) List(dir string, limit int) ([]string, error) {
	names, err := safefile.Names(dir, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
