//go:build linux

package image

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// complete gives a layer that does not stand alone what it needs of the layers below,
// the topmost first: owners and modes of directories that its archive only implies, and
// files that it has hard links to. The caller holds the layers below, and nobody else
// has dir yet. Overlayfs takes a directory's owner and mode from the topmost layer that
// has it, which is why they must be right here. below are descriptors of the trees, and
// stay the caller's.
func complete(dir string, out *unpacked, below []int, lim unpackLimits) error {
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	u := &unpacker{tree: *t, lim: lim, buf: make([]byte, 128<<10), implied: map[string]bool{}, out: *out}
	defer u.Close()
	// One budget for the whole layer: a hostile archive could otherwise ask for deep
	// look-ups in 500 layers for each of a million names.
	steps := maxSteps
	// Directories come first, in order, so that a parent is right before its children
	// are looked at; copied files are put into them afterwards.
	for _, path := range out.implied {
		if err := u.inherit(path, below, &steps); err != nil {
			return fmt.Errorf("complete %s: %w", shown(path), err)
		}
	}
	for _, l := range out.links {
		if err := u.linkBelow(l, below, &steps); err != nil {
			return fmt.Errorf("link %s: %w", shown(l.name), err)
		}
	}
	// Files that were copied up take space on the disk as well.
	out.size = u.out.size
	return nil
}

// hiddenByItself reports whether the layer hides what is below at a path.
func (u *unpacker) hiddenByItself(path string, steps *int) (bool, error) {
	fd, _, hides, err := findIn(u.fd, path, steps)
	// Only the verdict matters, not the entry.
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return hides, err
}

// inherit gives a directory the owner, mode, attributes and time of the one below. A
// directory that exists nowhere below keeps root and 0755, which step gave to it.
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
		return nil // something else is below: the directory hides it
	}
	fd, err := u.dir(path)
	if err != nil {
		return nil // the layer has something else there by now
	}
	// The archive's own opaque whiteout cuts the directory off from the one below.
	if isOpaque(fd) {
		return nil
	}
	// The owner before the mode, as a change of owner clears setuid and setgid
	// (chown(2)).
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	// The time comes last: it is that of the directory below, not of this work on it.
	_, base := split(path)
	if err := copyXattrs(byFD(from, base), func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) }); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, byFD(fd, "."), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// linkBelow copies a file up from below, and links to it. Overlayfs has hard links
// within one layer only, hence the copy. Containers see one file under both names, as
// the builder of the image did.
func (u *unpacker) linkBelow(l link, below []int, steps *int) error {
	dir, base := split(l.name)
	fd, _, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	// The tree keeps one directory open at a time: the look-ups below would close fd.
	held, err := unix.Dup(fd)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(held) }()
	// The file is there already if an earlier link had the same target.
	if done, err := u.linkTo(held, l.name, base, l.target); err != nil || done {
		return err
	}
	// A target that this same layer removes is not in the image any more.
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
		return fmt.Errorf("hard link to %s, which is not there", shown(l.target))
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

// copyUp copies the entry base of the open directory from, which has the state st, to
// target in this layer: its type, owner, mode, attributes and times.
func (u *unpacker) copyUp(from int, st unix.Stat_t, target string, below []int, steps *int) error {
	dir, base := split(target)
	before := len(u.implied)
	fd, _, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	// Its parents were not in the archive at all: they are implied directories like the
	// others, found only after complete had gone through those.
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
		// inherit has used the tree's one open directory for others.
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
		// The text of a link is copied and never followed.
		n, err := unix.Readlinkat(from, base, text)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(text[:n]), fd, base); err != nil {
			return err
		}
	// Device files and FIFOs. The device number was checked when the layer below was
	// unpacked.
	default:
		if err := unix.Mknodat(fd, base, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	// The same order as in ownAt: owner, mode, attributes, times.
	if err := unix.Fchownat(fd, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	// The mode of a symbolic link cannot be changed, and is not looked at.
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
	// O_NONBLOCK, so that not even a FIFO could make it wait.
	in, err := unix.Openat(from, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(in) }()
	// O_EXCL: the name is free, or something is wrong with the tree.
	out, err := unix.Openat(to, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	// The bytes count for the layer's limits: a hard link to a huge file below is no
	// way around them.
	n, err := u.copy(out, fdReader(in))
	if err = errors.Join(err, unix.Close(out)); err != nil {
		return err
	}
	u.out.size += n
	return nil
}

// fdReader reads a descriptor. An os.File would close it when it is collected as
// garbage; here the caller closes it.
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

// copyXattrs gives the attributes of a file to another one, less overlayfs's. The
// buffers have the largest sizes that the kernel gives (XATTR_LIST_MAX,
// XATTR_SIZE_MAX). path must end in an element that is not followed, as byFD makes it.
func copyXattrs(path string, set func(name string, value []byte) error) error {
	list := make([]byte, maxXattr)
	n, err := unix.Llistxattr(path, list)
	// A file system without attributes has none to lose.
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
		// A target that cannot store an attribute is no reason to fail the pull.
		if err := set(name, value[:m]); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}
