package safefile

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxFollowed is the maximum number of links that are followed for one name, as in the kernel
	// (MAXSYMLINKS in include/linux/namei.h).
	maxFollowed = 40
	// maxHeld limits the depth of a name, since each directory on its path stays open
	// during the walk.
	maxHeld = 128
	// maxName is the maximum length of a name after its links are expanded (PATH_MAX).
	maxName = 4096
)

// step opens a file without openat2. It opens element after element with O_PATH, and
// follows links itself. For ".." it returns to the open descriptor of the parent, so that
// it never leaves root, even if directories are renamed at the same time.
func step(root int, name string, how follow) (_ int, err error) {
	at := []int{} // descriptors of the opened elements
	defer func() {
		for _, fd := range at {
			_ = unix.Close(fd)
		}
	}()
	here := func() int {
		if len(at) == 0 {
			return root
		}
		return at[len(at)-1]
	}
	left := strings.Split(name, "/")
	for followed := 0; len(left) > 0; {
		element := left[0]
		left = left[1:]
		switch element {
		case "", ".":
			if err := wantDirectory(here()); err != nil {
				return -1, err
			}
			continue
		case "..":
			if len(at) == 0 && how == rooted {
				continue
			}
			if len(at) == 0 {
				return -1, unix.EXDEV
			}
			if err := wantDirectory(here()); err != nil {
				return -1, err
			}
			_ = unix.Close(here())
			at = at[:len(at)-1]
			continue
		}
		if len(at) == maxHeld {
			return -1, unix.ENAMETOOLONG
		}
		fd, err := ignoringEINTR(func() (int, error) {
			return unix.Openat(here(), element, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			return -1, err
		}
		target, isLink, err := linkOf(fd)
		if err != nil || !isLink || how == noLinks && len(left) == 0 { // with noLinks, the caller checks a link at the end
			at = append(at, fd)
			if err != nil {
				return -1, err
			}
			continue
		}
		_ = unix.Close(fd)
		followed++
		switch {
		case how != links && how != rooted, followed > maxFollowed:
			return -1, unix.ELOOP
		case strings.HasPrefix(target, "/") && how == rooted:
			for _, fd := range at {
				_ = unix.Close(fd)
			}
			at = at[:0]
		case strings.HasPrefix(target, "/"):
			return -1, unix.EXDEV
		case target == "":
			return -1, unix.ENOENT
		}
		if len(target)+len(strings.Join(left, "/")) > maxName {
			return -1, unix.ENAMETOOLONG
		}
		left = slices.Concat(strings.Split(target, "/"), left)
	}
	if len(at) == 0 {
		return ignoringEINTR(func() (int, error) { return unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0) })
	}
	last := here()
	at = at[:len(at)-1]
	return last, nil
}

// linkOf returns the target of the link that fd refers to. isLink is false for other files.
func linkOf(fd int) (target string, isLink bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, err
	}
	buf := make([]byte, maxName)
	n, err := ignoringEINTR(func() (int, error) { return unix.Readlinkat(fd, "", buf) })
	return string(buf[:max(n, 0)]), true, err
}

func wantDirectory(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	return nil
}
