//go:build linux

package localcri

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// volumes creates the directories of the image's volumes in the root file system if they are
// missing: a directory that only a VOLUME instruction names is in no layer. The caller mounts
// each returned volume on itself, which keeps it writable if the root is read-only. volumes skips
// paths that the container mounts, and paths below those.
func (c *container) volumes(paths []string) ([]ocispec.Volume, error) {
	var out []ocispec.Volume
	for _, p := range paths {
		at := path.Join("/", p)
		if at == "/" || c.mountsOver(at) {
			continue
		}
		source, err := c.makeInRootfs(at)
		if err != nil {
			return nil, errorf(codes.FailedPrecondition, "volume %.200q of the image: %v", p, err)
		}
		if c.config.GetLinux().GetSecurityContext().GetReadonlyRootfs() {
			out = append(out, ocispec.Volume{Path: at, Source: source})
		}
	}
	return out, nil
}

// mountsOver reports whether a path is at or below a mount of the container.
func (c *container) mountsOver(at string) bool {
	over := func(dir string) bool { return at == dir || strings.HasPrefix(at, dir+"/") }
	for _, m := range c.config.GetMounts() {
		if over(path.Join("/", m.GetContainerPath())) {
			return true
		}
	}
	return over("/proc") || over("/sys") || over("/dev")
}

// makeInRootfs creates a directory of the root file system with its parents, and returns its path
// on the host, without links. Links of the image lead where they lead in the container.
func (c *container) makeInRootfs(at string) (string, error) {
	root, err := unix.Open(c.bundle(rootfsDir), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: c.bundle(rootfsDir), Err: err}
	}
	defer func() { _ = unix.Close(root) }()
	u := c.pod.options().GetUsernsOptions()
	owner := [2]int{}
	if ownUserns(c.pod.options()) {
		owner = [2]int{shift(0, u.GetUids()), shift(0, u.GetGids())}
	}
	dir, err := unix.Dup(root)
	if err != nil {
		return "", err
	}
	done := ""
	for e := range strings.SplitSeq(strings.Trim(at, "/"), "/") {
		done += "/" + e
		next, err := openInRoot(root, done)
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(dir, e, owner)
		}
		_ = unix.Close(dir)
		if err != nil {
			return "", &os.PathError{Op: "make directory", Path: done, Err: err}
		}
		dir = next
	}
	defer func() { _ = unix.Close(dir) }()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
}

// openInRoot opens a directory of the root file system. Links are resolved as the
// container's processes would see them.
func openInRoot(root int, at string) (int, error) {
	return unix.Openat2(root, at, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// makeIn creates a directory in an open one, and opens it.
func makeIn(dir int, name string, owner [2]int) (int, error) {
	if err := unix.Mkdirat(dir, name, 0o755); err != nil {
		return -1, err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// Set explicitly, whatever the umask is.
	if err := errors.Join(unix.Fchown(fd, owner[0], owner[1]), unix.Fchmod(fd, 0o755)); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
