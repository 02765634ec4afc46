//go:build linux

package image

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// complete gives a layer that does not stand alone what it needs of the layers
// below, the topmost first: owners and modes of directories that its archive only
// implies, and files that it has hard links to.
func complete(dir string, sums io.Writer, out *unpacked, below []string, lim unpackLimits) error {
	t, err := openTree(dir)
	if err != nil {
		return err
	}
	u := &unpacker{tree: *t, lim: lim, sums: newSumWriter(sums), buf: make([]byte, 128<<10), implied: map[string]bool{}, out: *out}
	defer u.Close()
	steps := maxSteps
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
	out.size = u.out.size
	return u.sums.Flush()
}

// hiddenByItself reports whether the layer hides what is below at a path.
func (u *unpacker) hiddenByItself(path string, steps *int) (bool, error) {
	fd, _, hides, err := findIn(u.path, path, steps)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return hides, err
}

// inherit gives a directory the owner, mode, attributes and time of the one below.
func (u *unpacker) inherit(path string, below []string, steps *int) error {
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
	if isOpaque(fd) {
		return nil
	}
	if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	_, base := split(path)
	if err := copyXattrs(byFD(from, base), func(name string, value []byte) error { return unix.Fsetxattr(fd, name, value, 0) }); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, byFD(fd, "."), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// linkBelow copies a file up from below, and links to it.
func (u *unpacker) linkBelow(l link, below []string, steps *int) error {
	dir, base := split(l.name)
	fd, err := u.makeDir(dir)
	if err != nil {
		return err
	}
	held, err := unix.Dup(fd)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(held) }()
	if done, err := u.linkTo(held, l.name, base, l.target); err != nil || done {
		return err
	}
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
	if isDir(&st) {
		return fmt.Errorf("hard link to the directory %s", shown(l.target))
	}
	if err := u.copyUp(from, st, l.target, below, steps); err != nil {
		return err
	}
	_, err = u.linkTo(held, l.name, base, l.target)
	return err
}

func (u *unpacker) copyUp(from int, st unix.Stat_t, target string, below []string, steps *int) error {
	dir, base := split(target)
	before := len(u.implied)
	fd, err := u.makeDir(dir)
	if err != nil {
		return err
	}
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
		if fd, err = u.makeDir(dir); err != nil {
			return err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if err := u.copyFile(from, fd, target, base); err != nil {
			return err
		}
	case unix.S_IFLNK:
		text := make([]byte, maxPath+1)
		n, err := unix.Readlinkat(from, base, text)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(text[:n]), fd, base); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(fd, base, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	if err := unix.Fchownat(fd, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
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

func (u *unpacker) copyFile(from, to int, path, base string) error {
	in, err := unix.Openat(from, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(in) }()
	out, err := unix.Openat(to, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	sum, n, err := u.copy(out, fdReader(in))
	if err = errors.Join(err, unix.Close(out)); err != nil {
		return err
	}
	u.out.size += n
	return u.sums.file(path, n, sum)
}

// fdReader reads a descriptor.
type fdReader int

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

// copyXattrs gives the attributes of a file to another one, less overlayfs's.
func copyXattrs(path string, set func(name string, value []byte) error) error {
	list := make([]byte, maxXattr)
	n, err := unix.Llistxattr(path, list)
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
		if err := set(name, value[:m]); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return err
		}
	}
	return nil
}
