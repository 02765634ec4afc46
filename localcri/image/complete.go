//go:build linux

package image

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// complete adds to a layer the parts of lower layers on which it depends: owners and modes of
// directories that its archive only implies, and the targets of its hard links. below has
// descriptors of the trees of the lower layers, the topmost first. The caller holds these layers,
// and closes the descriptors. No other goroutine may use dir yet. Overlayfs takes a directory's
// owner and mode from the topmost layer that has it, so they must be right here.
func complete(dir string, out *unpacked, below []int, lim unpackLimits) error {
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	u := &unpacker{tree: *t, lim: lim, buf: make([]byte, 128<<10), implied: map[string]bool{}, out: *out}
	defer u.Close()
	// One limit for the whole layer: otherwise a hostile archive could cause deep look-ups in 500
	// layers for each of a million names.
	steps := maxSteps
	// Directories come first, in order, so that a parent is right before its children are read;
	// copied files are added afterwards.
	for _, path := range out.implied {
		if err := u.inherit(path, below, &steps); err != nil {
			return fmt.Errorf("copy owner and mode of %s from a lower layer: %w", shown(path), err)
		}
	}
	for _, l := range out.links {
		if err := u.linkBelow(l, below, &steps); err != nil {
			return fmt.Errorf("link %s: %w", shown(l.name), err)
		}
	}
	// Copied files take space on the disk as well.
	out.size = u.out.size
	return nil
}

// hiddenByItself reports whether this layer hides the path in the layers below.
func (u *unpacker) hiddenByItself(path string, steps *int) (bool, error) {
	fd, _, hides, err := findIn(u.fd, path, steps)
	// Only the existence matters, not the entry.
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return hides, err
}

// inherit copies owner, mode, attributes and times of the same directory in the layers below. A
// directory that does not exist there keeps root and 0755, which step has set.
func (u *unpacker) inherit(path string, below []int, steps *int) error {
	if hidden, err := u.hiddenByItself(path, steps); err != nil || hidden {
		return err
	}
	from, st, err := findBelow(below, path, steps)
	if err != nil || from < 0 {
		return err
	}
	defer func() { _ = unix.Close(from) }()
	if !isDir(&st) {
		return nil // another type below: the directory hides it
	}
	fd, err := u.dir(path)
	if err != nil {
		return nil // the layer has another type there now
	}
	// An opaque whiteout in the archive separates the directory from the one below.
	if isOpaque(fd) {
		return nil
	}
	// The owner before the mode, since chown clears setuid and setgid (chown(2)).
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	// The time is set last, since the other changes modify it.
	_, base := split(path)
	if err := copyXattrs(byFD(from, base), func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) }); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, byFD(fd, "."), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// linkBelow copies a file from a lower layer into this one and links to the copy, since
// overlayfs has hard links only within one layer. So containers see one file under both names,
// as the image's builder did.
func (u *unpacker) linkBelow(l link, below []int, steps *int) error {
	dir, base := split(l.name)
	fd, _, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	// The tree keeps only one directory open: the look-ups below would close fd.
	held, err := unix.Dup(fd)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(held) }()
	// The file has been copied already if an earlier link had the same target.
	if done, err := u.linkTo(held, l.name, base, l.target); err != nil || done {
		return err
	}
	// A target that this layer removes does not exist in the image any more.
	hidden, err := u.hiddenByItself(l.target, steps)
	if err != nil {
		return err
	}
	from := -1
	var st unix.Stat_t
	if !hidden {
		if from, st, err = findBelow(below, l.target, steps); err != nil {
			return err
		}
	}
	if from < 0 {
		return fmt.Errorf("hard link to %s, which does not exist", shown(l.target))
	}
	defer func() { _ = unix.Close(from) }()
	// link(2) allows no hard links to directories.
	if isDir(&st) {
		return fmt.Errorf("hard link to the directory %s", shown(l.target))
	}
	if err := u.copyUp(from, st, l.target, below, steps); err != nil {
		return err
	}
	_, err = u.linkTo(held, l.name, base, l.target)
	return err
}

// copyUp copies an entry from a lower layer to the path target in this layer: type, owner, mode,
// attributes and times. from is the open directory of the entry, base its name there, and st its
// state.
func (u *unpacker) copyUp(from int, st unix.Stat_t, target string, below []int, steps *int) error {
	dir, base := split(target)
	before := len(u.implied)
	fd, _, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	// The archive does not have its parents: they are implied directories like the others, but
	// were added after complete had processed those.
	if len(u.implied) > before { // made just now
		parts := strings.Split(dir, "/")
		for i := range parts {
			if p := strings.Join(parts[:i+1], "/"); u.implied[p] {
				delete(u.implied, p)
				if err := u.inherit(p, below, steps); err != nil {
					return err
				}
			}
		}
		// inherit has used the one open directory of the tree for others.
		if fd, _, err = u.makeDir(dir); err != nil {
			return err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if err := u.copyFile(from, fd, base); err != nil {
			return err
		}
	case unix.S_IFLNK:
		text := make([]byte, maxPath+1)
		// The target of a symbolic link is copied and never followed.
		n, err := unix.Readlinkat(from, base, text)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(text[:n]), fd, base); err != nil {
			return err
		}
	// Device nodes and FIFOs. The device number was checked when the layer below was unpacked.
	default:
		if err := unix.Mknodat(fd, base, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	// The same order as in ownAt: owner, mode, attributes, times.
	if err := unix.Fchownat(fd, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	// The mode of a symbolic link cannot be changed and has no effect.
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(fd, base, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	if err := copyXattrs(byFD(from, base), func(name string, value []byte) error {
		return unix.Lsetxattr(byFD(fd, base), name, value, 0)
	}); err != nil {
		return err
	}
	return unix.UtimesNanoAt(fd, base, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyFile copies the content of a regular file.
func (u *unpacker) copyFile(from, to int, base string) error {
	// With O_NONBLOCK not even a FIFO could block here.
	in, err := unix.Openat(from, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(in) }()
	// O_EXCL: if the name exists, the tree is not as expected.
	out, err := unix.Openat(to, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	// The bytes count for the layer's limits: a hard link to a huge file below must not bypass
	// them.
	n, err := u.copy(out, fdReader(in))
	if err = errors.Join(err, unix.Close(out)); err != nil {
		return err
	}
	u.out.size += n
	return nil
}

// fdReader reads from a descriptor. An os.File would close it in garbage collection; here the
// caller closes it.
type fdReader int

// Read implements io.Reader.
func (f fdReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// copyXattrs copies the extended attributes of a file, except those of overlayfs, to another one
// with set. The buffers have the kernel's maximum sizes (XATTR_LIST_MAX, XATTR_SIZE_MAX). path
// must end in an element that is not followed, as those of byFD.
func copyXattrs(path string, set func(name string, value []byte) error) error {
	list := make([]byte, maxXattr)
	n, err := unix.Llistxattr(path, list)
	// The file system has no attributes, so there are none to copy.
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if !keepsXattr(name) {
			continue
		}
		value := make([]byte, maxXattr)
		m, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return err
		}
		// It is no error if the target's file system cannot store an attribute.
		if err := set(name, value[:m]); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}
