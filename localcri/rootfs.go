//go:build linux

package localcri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/diskusage"
	"github.com/nodewright/nodewright/internal/retry"
	"github.com/nodewright/nodewright/internal/safefile"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/localcri/internal/ocispec"
)

// mounter mounts the layers of containers.
type mounter interface {
	// Private makes a directory a private mount: mounts below it do not propagate to other mount
	// namespaces.
	Private(dir string) error
	Overlay(o image.Overlay, target string) error
	// Mapped mounts a copy of the mount at source on target. In the copy, files belong to the IDs
	// of the user namespace userns.
	Mapped(source, target string, userns *os.File) error
	// Unmount does nothing for a path that is not a mount point, or does not exist.
	Unmount(target string) error
}

type realMounts struct{}

func (realMounts) Private(dir string) error                     { return image.PrivateDir(dir) }
func (realMounts) Overlay(o image.Overlay, target string) error { return o.Mount(target) }

func (realMounts) Mapped(source, target string, userns *os.File) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: source, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return &os.PathError{Op: "map IDs of", Path: source, Err: err}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount at", Path: target, Err: err}
	}
	return nil
}

func (realMounts) Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "unmount", Path: target, Err: err}
	}
	return nil
}

// mountRootfs mounts the layers of the image, with a writable directory of the container on top.
func (c *container) mountRootfs(root image.Rootfs) error {
	r := c.rt()
	for _, d := range []string{"", upperDir, workDir, rootfsDir} {
		if err := os.MkdirAll(c.bundle(d), closed); err != nil {
			return err
		}
	}
	layers, undo, err := c.mapLayers(root.Layers)
	defer undo() // overlayfs keeps its own clones
	if err != nil {
		return err
	}
	if r.cfg.Projects && ownUserns(c.pod.options()) {
		_ = diskusage.Assign(c.bundle(upperDir), c.bundle(workDir)) // otherwise the layer is walked
	}
	uid, gid := root.UID, root.GID
	if ownUserns(c.pod.options()) {
		u := c.pod.options().GetUsernsOptions()
		uid, gid = shift(uid, u.GetUids()), shift(gid, u.GetGids())
	}
	// The owner and mode of the root directory are those of the upper directory.
	if err := errors.Join(os.Chown(c.bundle(upperDir), uid, gid), os.Chmod(c.bundle(upperDir), root.Mode)); err != nil {
		return err
	}
	if ownUserns(c.pod.options()) {
		if err := allowGroup(c.bundle(), shift(0, c.pod.options().GetUsernsOptions().GetGids())); err != nil {
			return err
		}
	}
	return r.mounts.Overlay(image.Overlay{Layers: layers, Upper: c.bundle(upperDir), Work: c.bundle(workDir), Volatile: true}, c.bundle(rootfsDir))
}

// allowGroup lets the members of a group pass through a directory, but not list it. It first takes
// all rights from groups (the mode closed), then changes the group, and then gives the right. So
// the previous group never has it.
func allowGroup(dir string, group int) error {
	return errors.Join(os.Chmod(dir, closed), os.Chown(dir, 0, group), os.Chmod(dir, mapped))
}

// shift returns the user or group ID on the host for an ID in an image.
func shift(id int, m []*runtimeapi.IDMapping) int {
	for _, one := range m {
		if from := int(one.GetContainerId()); id >= from && id < from+int(one.GetLength()) {
			return id - from + int(one.GetHostId())
		}
	}
	return id
}

const lowerDir = "lower" // in a bundle: layers with mapped IDs, while they are mounted

// mapLayers returns layers whose files belong to the IDs of the pod's user namespace. If the pod
// has no user namespace, it returns the given layers. The kernel can map the IDs of layers, but
// not the IDs of an overlay. undo removes the mounts; the caller must call it after an error, too.
func (c *container) mapLayers(layers []string) (mapped []string, undo func(), err error) {
	undo = func() {
		for _, m := range slices.Backward(mapped) {
			_ = c.rt().mounts.Unmount(m)
		}
	}
	if !ownUserns(c.pod.options()) {
		return layers, func() {}, nil
	}
	userns, err := c.rt().spaces.OpenUser(c.pod.id)
	if err != nil {
		return nil, undo, fmt.Errorf("open user namespace: %w", err)
	}
	defer func() { _ = userns.Close() }()
	for i, l := range layers {
		to := c.bundle(lowerDir, strconv.Itoa(i))
		if err := os.MkdirAll(to, closed); err != nil {
			return mapped, undo, err
		}
		if err := c.rt().mounts.Mapped(l, to, userns); err != nil {
			return mapped, undo, errorf(codes.FailedPrecondition, "user namespace: the layers of the image cannot be mapped to its IDs by %s: %v", kernelRelease(), err)
		}
		mapped = append(mapped, to)
	}
	return mapped, undo, nil
}

// sources returns the host's path of each mount. For mounts of images, it mounts the images
// first.
func (c *container) sources(ctx context.Context) ([]ocispec.Source, error) {
	out, err := c.rt().facts.Sources(ctx, c.config.GetMounts())
	if err != nil {
		return nil, err
	}
	var refs []string // nil if there are no images
	for i, m := range c.config.GetMounts() {
		ref := m.GetImage().GetImage()
		if ref == "" {
			continue
		}
		dir := c.bundle(imagesDir, strconv.Itoa(i))
		root, err := c.mountImage(ctx, i, ref, dir)
		if err != nil {
			return nil, fmt.Errorf("mount image %.200q: %w", ref, err)
		}
		if refs == nil {
			refs = make([]string, len(out))
		}
		refs[i] = cmp.Or(nameFor(root.Digests, m.GetImage()), root.Image)
		out[i] = ocispec.Source{Propagation: "private"}
		sub := m.GetImageSubPath()
		if sub == "" {
			out[i].Path = dir
			continue
		}
		if !filepath.IsLocal(sub) {
			return nil, invalid(fmt.Sprintf("mounts[%d].image_sub_path", i), sub, "must be a path below the image's root")
		}
		// Without following links, since the image must not lead to the host's files.
		f, err := safefile.OpenWithin(dir, sub)
		if err == nil {
			_ = f.Close()
		}
		if err == nil || isDirectory(dir, sub) {
			out[i].Path = filepath.Join(dir, sub)
		}
	}
	c.pod.mu.Lock()
	c.record.MountRefs = refs
	c.pod.mu.Unlock()
	return out, nil
}

// isDirectory reports whether sub is a directory below dir, without links on the path.
func isDirectory(dir, sub string) bool {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	at, err := unix.Openat2(fd, sub, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return false
	}
	_ = unix.Close(at)
	return true
}

func (c *container) mountImage(ctx context.Context, i int, ref, dir string) (image.Rootfs, error) {
	root, err := c.rt().cfg.Images.Use(ctx, ref, imageOwner(c.id, i))
	if err != nil {
		return root, err
	}
	if err := os.MkdirAll(dir, closed); err != nil {
		return root, err
	}
	layers, undo, err := c.mapLayers(root.Layers)
	defer undo()
	if err != nil {
		return root, err
	}
	return root, c.rt().mounts.Overlay(image.Overlay{Layers: layers}, dir)
}

// imageOwner returns the name under which a container uses the image of its mount with the index
// i.
func imageOwner(id string, i int) string { return id + ".image" + strconv.Itoa(i) }

// ownerOf returns the ID of the container that uses layers under the name lease. It returns "" if
// lease is not the name of a container.
func ownerOf(lease string) string {
	id, rest, found := strings.Cut(lease, ".")
	if !isID(id) || found && !strings.HasPrefix(rest, "image") {
		return ""
	}
	return id
}

// unmount removes the mounts of a container. It may be called again.
func (c *container) unmount() error { return c.rt().unmountAll(c.id) }

func (r *Runtime) unmountAll(id string) error {
	var errs []error
	bundle := r.rootPath(containersDir, id)
	for _, d := range []string{lowerDir, imagesDir} {
		const most = 4096
		names, err := safefile.Names(filepath.Join(bundle, d), most)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, n := range names {
			errs = append(errs, r.mounts.Unmount(filepath.Join(bundle, d, n)))
		}
	}
	return errors.Join(append(errs, r.mounts.Unmount(filepath.Join(bundle, rootfsDir)))...)
}

// releaseImages releases all images that a container uses.
func (r *Runtime) releaseImages(ctx context.Context, id string) error {
	owners, err := r.cfg.Images.Owners(ctx)
	if err != nil {
		return err
	}
	for _, o := range owners {
		if ownerOf(o) == id {
			if err := r.cfg.Images.Release(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// freeOf returns the free space of a file system for users other than root: bytes and inodes.
// If a file system has no limit of inodes, the result is the largest number.
func freeOf(dir string) (bytes int64, inodes uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if st.Files == 0 {
		return int64(st.Bavail) * st.Bsize, 1, nil
	}
	return int64(st.Bavail) * st.Bsize, st.Ffree, nil
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "this kernel"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}

// busy retries f for a short time while the kernel returns EBUSY, which it does until
// an earlier unmount is complete.
func busy(ctx context.Context, f func() error) error {
	for range 50 {
		err := f()
		if !errors.Is(err, unix.EBUSY) || !retry.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
	return f()
}
