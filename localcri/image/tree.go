//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
)

// opaqueXattr returns the name of the attribute that marks an opaque directory in overlayfs
// (Documentation/filesystems/overlayfs.rst). In a user namespace it is a user attribute: see
// [Overlay.Mount]. The prefix belongs to the kernel: an archive must not set such attributes.
func opaqueXattr() string {
	if userns.RunningInUserNS() {
		return "user.overlay.opaque"
	}
	return "trusted.overlay.opaque"
}

// tree is the directory of a layer. All access is relative to its descriptor; no link is followed
// and no mount point crossed. Only one goroutine may use it at a time.
type tree struct {
	path string
	fd   int

	at   string // the directory that was used last, and its descriptor
	atFD int
}

// openTree opens a layer's directory. The caller has to call Close.
func openTree(path string) (*tree, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &tree{path: path, fd: fd, atFD: -1}, nil
}

// Close closes the descriptors of the tree, also those that dir returned.
func (t *tree) Close() {
	t.forget()
	_ = unix.Close(t.fd)
}

// forget closes the directory that was used last. It must be called before that directory is
// removed or replaced, since the descriptor would still refer to the removed directory.
func (t *tree) forget() {
	if t.atFD >= 0 {
		_ = unix.Close(t.atFD)
	}
	t.at, t.atFD = "", -1
}

// dir opens a directory. The descriptor belongs to the tree, and is valid until the next call.
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

// openBeneath opens the directory path below an open one (openat2(2), since Linux 5.6). The error
// is ELOOP for a link in the path, EXDEV for a mount point. The caller closes the descriptor.
func openBeneath(fd int, path string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		got, err := unix.Openat2(fd, path, how)
		// The kernel returns EAGAIN if a rename elsewhere interfered; another try helps.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return got, err
		}
	}
}

// stat returns the attributes of an entry of an open directory. It follows no links.
func stat(fd int, base string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// isDir reports whether st describes a directory.
func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// isWhiteout reports whether st describes a whiteout: a character device with the number 0/0.
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// remove removes an entry of an open directory, with everything below it.
func (t *tree) remove(fd int, base string) error {
	// Most entries are files, for which one call is enough.
	err := unix.Unlinkat(fd, base, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	// An os.Root follows no link out of the directory.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.RemoveAll(base)
}

// setOpaque marks a directory, so that overlayfs hides the entries that the layers
// below have in it.
func setOpaque(fd int) error { return unix.Fsetxattr(fd, opaqueXattr(), []byte("y"), 0) }

// isOpaque reports whether setOpaque has marked a directory. Other values have other meanings in
// overlayfs.
func isOpaque(fd int) bool {
	var b [2]byte
	n, err := unix.Fgetxattr(fd, opaqueXattr(), b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

// byFD returns a path to an entry of an open directory, for calls that take no descriptor. They
// must not follow its last element.
func byFD(fd int, base string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", fd, base) }

// findBelow looks up a path in a stack of layers, the topmost first, as overlayfs does: a
// whiteout, an opaque directory or a non-directory hides the layers below. It returns a
// descriptor of the parent directory, which the caller closes, or -1 if the path does not exist.
// findBelow decrements *steps at each look-up of an element. When *steps is 0, it returns an
// error.
func findBelow(layers []int, path string, steps *int) (fd int, st unix.Stat_t, err error) {
	for _, l := range layers {
		// The first layer that has or hides the path decides.
		fd, st, hides, err := findIn(l, path, steps)
		if err != nil || fd >= 0 || hides {
			return fd, st, err
		}
	}
	return -1, st, nil
}

// findIn looks up a path in one layer. The result hides reports whether this layer hides the
// path in the layers below. fd is the parent directory, or -1 if the path does not exist.
func findIn(layer int, path string, steps *int) (fd int, st unix.Stat_t, hides bool, err error) {
	at, err := unix.Openat(layer, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, false, err
	}
	// An opaque directory in the path hides everything below it.
	hides = isOpaque(at)
	elements := strings.Split(path, "/")
	for i, e := range elements {
		if *steps--; *steps < 0 {
			_ = unix.Close(at)
			return -1, st, false, fmt.Errorf("%w: too many look-ups in the layers below", errLimit)
		}
		st, err = stat(at, e)
		// Not in this layer; the layers below may have it unless a parent was opaque.
		if errors.Is(err, unix.ENOENT) {
			_ = unix.Close(at)
			return -1, st, hides, nil
		}
		last := i == len(elements)-1
		if err == nil && last && !isWhiteout(&st) {
			return at, st, hides, nil
		}
		// A whiteout, or a file where a directory is needed, ends the look-up.
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
