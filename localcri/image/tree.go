//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Names that overlayfs knows (Documentation/filesystems/overlayfs.rst). The prefix
// trusted.overlay. belongs to the kernel: no archive may set such an attribute.
const (
	opaqueXattr   = "trusted.overlay.opaque"
	overlayXattrs = "trusted.overlay."
)

// tree is the directory of a layer. Everything is done relative to its
// descriptor; no link is followed and no mount point crossed. It is used by one
// goroutine at a time.
type tree struct {
	path string
	fd   int

	at   string // the directory that was used last, and its descriptor
	atFD int
}

// openTree opens a layer's directory. Close must be called.
func openTree(path string) (*tree, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &tree{path: path, fd: fd, atFD: -1}, nil
}

// Close closes the descriptors of the tree; those that dir returned are void.
func (t *tree) Close() {
	t.forget()
	_ = unix.Close(t.fd)
}

// forget lets go of the directory that was used last. It must be called before that
// directory is removed or replaced: the descriptor would go on to name the old one.
func (t *tree) forget() {
	if t.atFD >= 0 {
		_ = unix.Close(t.atFD)
	}
	t.at, t.atFD = "", -1
}

// dir opens a directory. The descriptor is the tree's, good until the next call.
func (t *tree) dir(path string) (int, error) {
	if path == "." {
		return t.fd, nil
	}
	// Archives list the entries of a directory one after the other.
	if t.atFD >= 0 && t.at == path {
		return t.atFD, nil
	}
	fd, err := openBeneath(t.fd, path)
	if err != nil {
		return -1, err
	}
	t.forget()
	t.at, t.atFD = path, fd
	return fd, nil
}

// openBeneath opens the directory path below an open one (openat2(2), since Linux 5.6).
// A link on the way is ELOOP, a mount point EXDEV. The caller closes the descriptor.
func openBeneath(fd int, path string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		got, err := unix.Openat2(fd, path, how)
		// EAGAIN is the kernel's answer if a rename elsewhere came in between; it is
		// worth another try.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return got, err
		}
	}
}

// stat looks at an entry of an open directory. Links are not followed.
func stat(fd int, base string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// isDir reports whether st is of a directory.
func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// isWhiteout reports whether st is of a whiteout: a character device with the number
// 0/0.
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// remove removes an entry of an open directory, with all that is below it.
func (t *tree) remove(fd int, base string) error {
	// Most entries are files: one call.
	err := unix.Unlinkat(fd, base, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	// A Root follows no link out of the directory, whatever is below.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.RemoveAll(base)
}

// setOpaque hides what the layers below have in a directory.
func setOpaque(fd int) error { return unix.Fsetxattr(fd, opaqueXattr, []byte("y"), 0) }

// isOpaque reports whether setOpaque has marked a directory. Other values that
// overlayfs may know have other meanings.
func isOpaque(fd int) bool {
	var b [2]byte
	n, err := unix.Fgetxattr(fd, opaqueXattr, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// byFD is a path to an entry of an open directory, for the calls that take no
// descriptor. Its last element is not followed by them.
func byFD(fd int, base string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", fd, base) }

// findBelow looks for a path in a stack of layers, the topmost first, as
// overlayfs does: a whiteout, an opaque directory or anything that is no
// directory hides what is below. It returns a descriptor of the directory that
// holds it, for the caller to close, and -1 if there is nothing. steps is taken
// down by one for each element that was looked at; at 0 it is an error.
func findBelow(layers []int, path string, steps *int) (fd int, st unix.Stat_t, err error) {
	for _, l := range layers {
		// The first layer with an answer decides, be it that the path is hidden.
		fd, st, hides, err := findIn(l, path, steps)
		if err != nil || fd >= 0 || hides {
			return fd, st, err
		}
	}
	return -1, st, nil
}

// findIn looks for a path in one layer. hides reports whether the layer hides what
// those below have there. fd is of the directory that holds the last element, and -1
// without one.
func findIn(layer int, path string, steps *int) (fd int, st unix.Stat_t, hides bool, err error) {
	at, err := unix.Openat(layer, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, false, err
	}
	// An opaque directory anywhere on the way hides all that is below it.
	hides = isOpaque(at)
	elements := strings.Split(path, "/")
	for i, e := range elements {
		if *steps--; *steps < 0 {
			_ = unix.Close(at)
			return -1, st, false, fmt.Errorf("%w: too many look-ups in the layers below", errLimit)
		}
		st, err = stat(at, e)
		// Not in this layer, and in those below unless one of the parents was opaque.
		if errors.Is(err, unix.ENOENT) {
			_ = unix.Close(at)
			return -1, st, hides, nil
		}
		last := i == len(elements)-1
		if err == nil && last && !isWhiteout(&st) {
			return at, st, hides, nil
		}
		// A whiteout, or a file where a directory is asked for, ends the search.
		if err == nil && (isWhiteout(&st) || !isDir(&st)) {
			_ = unix.Close(at)
			return -1, st, true, nil
		}
		next := -1
		if err == nil {
			next, err = openBeneath(at, e)
		}
		_ = unix.Close(at)
		if err != nil {
			return -1, st, false, err
		}
		at = next
		hides = hides || isOpaque(at)
	}
	_ = unix.Close(at)
	return -1, st, hides, nil
}
