package mount

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Bind makes a bind mount.
func (k *Kernel) Bind(ctx context.Context, b Bind) error {
	if b.RecursiveReadOnly && !b.ReadOnly {
		return fmt.Errorf("bind %s: RecursiveReadOnly is set without ReadOnly; want both", b.Target)
	}
	if err := checkOptions(b.Options); err != nil {
		return err
	}
	flags, rest := split(b.Options)
	if len(rest) > 0 {
		return fmt.Errorf("bind %s: options %q are not flags; want flags only, such as noexec", b.Target, rest)
	}
	if b.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	propagation, err := b.Propagation.flag()
	if err != nil {
		return err
	}
	if b.File != nil {
		return k.bind(ctx, b, flags, propagation)
	}
	// Opening the source may block on a server.
	return k.await(ctx, fmt.Sprintf("bind %#v", b), func() error { return k.bind(ctx, b, flags, propagation) })
}

func (k *Kernel) bind(ctx context.Context, b Bind, flags, propagation uintptr) error {
	source := b.File
	if source == nil {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: b.Source, Err: err}
		}
		source = os.NewFile(uintptr(fd), b.Source)
		defer func() { _ = source.Close() }()
	}
	target, err := open(b.Target)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	// A bind mount does not wait for a server, since the source is open already.
	err = ctx.Err()
	if err == nil {
		err = unix.ENOSYS
		if !k.Classic {
			err = bindTree(b, source, target, flags, propagation)
		}
		if errors.Is(err, unix.ENOSYS) {
			err = bindClassic(b, source, target, flags, propagation)
		}
	}
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", source.Name(), b.Target, err)
	}
	return nil
}

// flag returns the flag of mount(2) for the propagation. It returns 0 for "", which keeps the
// kernel's default.
func (p Propagation) flag() (uintptr, error) {
	switch p {
	case "":
		return 0, nil
	case Private:
		return unix.MS_PRIVATE, nil
	case Slave:
		return unix.MS_SLAVE, nil
	case Shared:
		return unix.MS_SHARED, nil
	}
	return 0, fmt.Errorf("propagation %q, want private, slave or shared", string(p))
}

// bindTree creates a detached copy of the mount, sets its attributes and attaches it
// (open_tree(2), mount_setattr(2), move_mount(2)). It returns ENOSYS if the kernel lacks one of
// these calls.
func bindTree(b Bind, source, target *os.File, flags, propagation uintptr) error {
	attr, ok := attributesOf(flags)
	if !ok {
		return unix.ENOSYS
	}
	how := uint(unix.OPEN_TREE_CLONE | unix.O_CLOEXEC | unix.AT_EMPTY_PATH)
	if b.Recursive {
		how |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(int(source.Fd()), "", how)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }() // closing an unattached copy removes it
	set := func(below bool, attr unix.MountAttr) error {
		if attr == (unix.MountAttr{}) {
			return nil
		}
		flags := uint(unix.AT_EMPTY_PATH)
		if below {
			flags |= unix.AT_RECURSIVE
		}
		return unix.MountSetattr(tree, "", flags, &attr)
	}
	if err := set(false, attr); err != nil {
		return err
	}
	if b.RecursiveReadOnly {
		if err := set(true, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	if err := unix.MoveMount(tree, "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return err
	}
	// If the parent mount is shared, attaching has made the copy shared too.
	if err := set(b.Recursive, unix.MountAttr{Propagation: uint64(propagation)}); err != nil {
		return errors.Join(err, undo(b.Target))
	}
	return nil
}

// attributesOf converts flags of mount(2) to those of mount_setattr(2). If one of them has no
// equivalent, ok is false.
func attributesOf(flags uintptr) (attr unix.MountAttr, ok bool) {
	for _, f := range []struct {
		flag       uintptr
		set, clear uint64
	}{
		{unix.MS_RDONLY, unix.MOUNT_ATTR_RDONLY, 0},
		{unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID, 0},
		{unix.MS_NODEV, unix.MOUNT_ATTR_NODEV, 0},
		{unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC, 0},
		{unix.MS_NOSYMFOLLOW, unix.MOUNT_ATTR_NOSYMFOLLOW, 0},
		{unix.MS_NODIRATIME, unix.MOUNT_ATTR_NODIRATIME, 0},
		{unix.MS_NOATIME, unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME},
		{unix.MS_RELATIME, unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
		{unix.MS_STRICTATIME, unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME},
	} {
		if flags&f.flag != 0 {
			attr.Attr_set |= f.set
			attr.Attr_clr |= f.clear
			flags &^= f.flag
		}
	}
	return attr, flags == 0
}

// bindClassic binds and then remounts with the flags (mount(2)).
func bindClassic(b Bind, source, target *os.File, flags, propagation uintptr) (err error) {
	if b.RecursiveReadOnly {
		return ErrRecursiveReadOnly
	}
	var rec uintptr
	if b.Recursive {
		rec = unix.MS_REC
	}
	if err := unix.Mount(magic(source), magic(target), "", unix.MS_BIND|rec, ""); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo(b.Target))
		}
	}()
	// The target's path now leads to the mount; the descriptor still leads to the directory below
	// it.
	mounted, err := open(b.Target)
	if err != nil {
		return err
	}
	defer func() { _ = mounted.Close() }()
	if flags != 0 {
		kept, err := flagsAt(mounted)
		if err != nil {
			return err
		}
		if err := unix.Mount("", magic(mounted), "", unix.MS_REMOUNT|unix.MS_BIND|flags|kept, ""); err != nil {
			return err
		}
	}
	if propagation == 0 {
		return nil
	}
	return unix.Mount("", magic(mounted), "", propagation|rec, "")
}

// undo unmounts an incomplete mount. It detaches the mount, since mounts below keep it busy.
func undo(target string) error { return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }

// stNoSymFollow is ST_NOSYMFOLLOW of linux/statfs.h.
const stNoSymFollow = 0x2000

// flagsAt returns the flags of the mount that contains f (statfs(2)).
func flagsAt(f *os.File) (uintptr, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	var out uintptr
	for _, f := range []struct {
		have int64
		flag uintptr
	}{
		{unix.ST_RDONLY, unix.MS_RDONLY}, {unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC}, {unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME}, {stNoSymFollow, unix.MS_NOSYMFOLLOW},
	} {
		if int64(st.Flags)&f.have != 0 { //nolint:unconvert // its type depends on the architecture
			out |= f.flag
		}
	}
	return out, nil
}
