//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
)

// maxOptions is the limit of mount(2) for options, in bytes: a page without the NUL.
const maxOptions = 4095

// maxParam is the limit of fsconfig(2) for a value, in bytes without the NUL. A longer value
// fails with EINVAL, like an unknown name.
const maxParam = 255

// Overlay describes an overlayfs mount.
type Overlay struct {
	// Layers are the directories of the layers, the topmost first. There are 1 to 500, and at
	// least 2 if Upper is "".
	Layers []string
	// Upper is the directory for changes, and Work an empty directory on the same file system. If
	// both are "", the mount is read-only.
	Upper, Work string
	// Volatile skips syncs to the disk: after a crash of the machine, Upper is not usable.
	Volatile bool
}

// check returns an error that names the field, for values that the kernel would reject
// with only EINVAL.
func (o Overlay) check() error {
	if len(o.Layers) == 0 || len(o.Layers) > maxLayers {
		return fmt.Errorf("image: Overlay.Layers has %d directories; want 1 to %d", len(o.Layers), maxLayers)
	}
	// overlayfs.rst, "Multiple lower layers": without an upper directory it needs at least two.
	if o.Upper == "" && o.Work == "" && len(o.Layers) < 2 {
		return fmt.Errorf("image: Overlay.Layers has %d directories; a read-only mount needs at least 2", len(o.Layers))
	}
	if (o.Upper == "") != (o.Work == "") {
		return fmt.Errorf("image: Overlay.Upper is %q and Work %q; want both or none", o.Upper, o.Work)
	}
	// A relative path would depend on the working directory, which mountOnce changes.
	for _, d := range append([]string{o.Upper, o.Work}, o.Layers...) {
		if d != "" && !filepath.IsAbs(d) {
			return fmt.Errorf("image: Overlay has the directory %q; want an absolute path", d)
		}
	}
	return nil
}

// flags returns the mount options that name no directories.
func (o Overlay) flags() []string {
	// The default of "index" depends on how the kernel was built (OVERLAY_FS_INDEX); mounts shall
	// be the same on every node.
	out := []string{"index=off"}
	// Without userxattr (Linux 5.11), overlayfs uses attributes with the prefix trusted., which nobody
	// can set in a user namespace.
	if userns.RunningInUserNS() {
		out = append(out, "userxattr")
	}
	// Documentation/filesystems/overlayfs.rst, "Volatile mount". The upper directory of such a
	// mount cannot be mounted again: a new one is needed.
	if o.Volatile && o.Upper != "" {
		out = append(out, "volatile")
	}
	return out
}

// Mount mounts the layers at target, a directory. Kernels since 6.8 get the layers one by one;
// older ones get one option, with short names if it would be too long. The mount is not
// propagated if target is below a [PrivateDir].
func (o Overlay) Mount(target string) error {
	if err := o.check(); err != nil {
		return err
	}
	// Once it is known that the kernel does not support single layers, that is not tried again.
	err := errNoLayerParam
	if !noLayerParam.Load() {
		err = o.mountEach(target)
	}
	switch {
	case errors.Is(err, errNoLayerParam):
		err = o.mountOnce(target)
	case errors.Is(err, unix.EINVAL):
		// Before 6.5 overlayfs does not check parameters one by one: the kernel collects all of
		// them, and rejects them together when they are used.
		if once := o.mountOnce(target); once == nil {
			noLayerParam.Store(true)
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("image: mount %d layers at %s: %w", len(o.Layers), target, err)
	}
	return nil
}

// noLayerParam means that the kernel does not accept single layers, so that mountEach
// need not be tried. It is set only if mountOnce succeeded with the same input. It is
// global, since it is a property of the kernel.
var noLayerParam atomic.Bool

// errNoLayerParam means that the kernel does not accept single layers.
var errNoLayerParam = errors.New("kernel knows no lowerdir+")

// mountEach passes the layers to the kernel one by one. The new mount is attached to target only
// when it is complete. It returns errNoLayerParam if the kernel, or a seccomp filter, does not
// support these calls.
func (o Overlay) mountEach(target string) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return errNoLayerParam
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fs) }()
	for i, dir := range o.Layers {
		done, err := setPath(fs, "lowerdir+", dir, "")
		// Descriptors stay open until the end: some kernels resolve a path here, others when the
		// file system is created.
		defer done()
		// Only the first error proves it: later ones may be EINVAL for other reasons.
		if err != nil && i == 0 && errors.Is(err, unix.EINVAL) {
			return errNoLayerParam
		}
		if err != nil {
			return explained(fs, fmt.Errorf("layer %s: %w", dir, err))
		}
	}
	if o.Upper != "" {
		for key, dir := range map[string]string{"upperdir": o.Upper, "workdir": o.Work} {
			// Unlike in lowerdir+, a backslash is an escape character in these (ovl_mount_dir of
			// Linux).
			done, err := setPath(fs, key, dir, `\`)
			defer done()
			if err != nil {
				return explained(fs, fmt.Errorf("%s %s: %w", key, dir, err))
			}
		}
	}
	for _, f := range o.flags() {
		key, value, ok := strings.Cut(f, "=")
		if ok {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return explained(fs, fmt.Errorf("option %s: %w", f, err))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return explained(fs, err)
	}
	// Without an upper directory overlayfs is read-only anyway; the mount is marked read-only as
	// well, for readers of the mount table.
	attr := 0
	if o.Upper == "" {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return explained(fs, err)
	}
	defer func() { _ = unix.Close(mnt) }()
	// Afterwards the descriptor of the mount can be closed.
	return unix.MoveMount(mnt, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// setPath passes a path to fsconfig, with a backslash before special characters. If a path is
// too long, setPath opens it and passes a path through the descriptor, which done closes.
func setPath(fs int, key, path, special string) (done func(), err error) {
	if escaped := escape(path, special); len(escaped) <= maxParam {
		return func() {}, unix.FsconfigSetString(fs, key, escaped)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = unix.Close(fd) }, unix.FsconfigSetString(fs, key, fmt.Sprintf("/proc/self/fd/%d", fd))
}

// explained adds the kernel's message to an error. It removes the beginning of the message, a
// letter for its kind and a space.
func explained(fs int, err error) error {
	buf := make([]byte, 1024)
	n, rerr := unix.Read(fs, buf)
	// If there is no message, the read fails with ENODATA.
	if rerr != nil || n < 3 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(buf[2:n])))
}

// mountOnce mounts with one option for all layers. It uses mount(2), which all kernels have, and
// which allows one page for all options together.
func (o Overlay) mountOnce(target string) error {
	opts, ok := o.options(o.Layers)
	if ok {
		return unix.Mount("overlay", target, "overlay", o.mountFlags(), opts)
	}
	// Descriptors of the layers have short names, in the directory of descriptors: it becomes the
	// working directory of a thread that ends afterwards.
	names := make([]string, len(o.Layers))
	for i, dir := range o.Layers {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: dir, Err: err}
		}
		defer func() { _ = unix.Close(fd) }()
		names[i] = strconv.Itoa(fd)
	}
	if opts, ok = o.options(names); !ok {
		return fmt.Errorf("%w: options have more than %d bytes", errLimit, maxOptions)
	}
	// Buffered, so that the goroutine always ends.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		// Threads share a working directory until one unshares it: the others must not be
		// affected.
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Chdir("/proc/self/fd")
		}
		if err == nil {
			err = unix.Mount("overlay", target, "overlay", o.mountFlags(), opts)
		}
		done <- err
	}()
	return <-done
}

// mountFlags returns the flags for mount(2).
func (o Overlay) mountFlags() uintptr {
	if o.Upper == "" {
		return unix.MS_RDONLY
	}
	return 0
}

// options returns the options for mount(2), and whether they fit into a page.
func (o Overlay) options(lower []string) (string, bool) {
	escaped := make([]string, len(lower))
	for i, l := range lower {
		// A colon ends a layer and a comma an option, unless a backslash precedes it.
		escaped[i] = escape(l, `\:,`)
	}
	out := append(o.flags(), "lowerdir="+strings.Join(escaped, ":"))
	if o.Upper != "" {
		out = append(out, "upperdir="+escape(o.Upper, `\,`), "workdir="+escape(o.Work, `\,`))
	}
	text := strings.Join(out, ",")
	return text, len(text) <= maxOptions
}

// escape puts a backslash before special characters.
func escape(path, special string) string {
	var b strings.Builder
	for _, r := range []byte(path) {
		if strings.IndexByte(special, r) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(r)
	}
	return b.String()
}

// PrivateDir makes a directory a private mount, if it is not one already. Mounts below it are not
// propagated to other mount namespaces.
func PrivateDir(dir string) error {
	// EINVAL means that the directory is not a mount point.
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err == nil {
		return nil // it is a mount point
	} else if !errors.Is(err, unix.EINVAL) {
		return &os.PathError{Op: "make private", Path: dir, Err: err}
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: dir, Err: err}
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		// A shared mount would propagate the mounts below it.
		return errors.Join(&os.PathError{Op: "make private", Path: dir, Err: err}, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return nil
}
