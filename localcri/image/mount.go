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

	"golang.org/x/sys/unix"
)

// maxOptions is how many bytes mount(2) takes of options: a page, less the NUL.
const maxOptions = 4095

// maxParam is how many bytes fsconfig(2) takes of a value, less the NUL. Longer ones
// fail with EINVAL, as unknown names do.
const maxParam = 255

// Overlay is a mount of layers.
type Overlay struct {
	// Layers are directories, the topmost first: 1 to 500, and at least 2 without
	// Upper.
	Layers []string
	// Upper takes what is written, and Work is an empty directory on its file
	// system; without both the mount is read-only.
	Upper, Work string
	// Volatile leaves out what makes Upper outlast a crash of the machine.
	Volatile bool
}

// check refuses what the kernel would refuse with a bare EINVAL, and names the field.
func (o Overlay) check() error {
	if len(o.Layers) == 0 || len(o.Layers) > maxLayers {
		return fmt.Errorf("image: Overlay.Layers has %d directories; want 1 to %d", len(o.Layers), maxLayers)
	}
	// overlayfs.rst, "Multiple lower layers": without an upper directory two are the
	// least.
	if o.Upper == "" && o.Work == "" && len(o.Layers) < 2 {
		return fmt.Errorf("image: Overlay.Layers has %d directories; want at least 2 of a mount that is read-only", len(o.Layers))
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

// flags are options that are not directories.
func (o Overlay) flags() []string {
	// Whether an index is kept depends on how the kernel was built (OVERLAY_FS_INDEX):
	// the same node software gets the same mounts everywhere.
	out := []string{"index=off"}
	// Documentation/filesystems/overlayfs.rst, "Volatile mount". The upper directory of
	// such a mount cannot be mounted again: a new one is needed.
	if o.Volatile && o.Upper != "" {
		out = append(out, "volatile")
	}
	return out
}

// Mount mounts the layers at target, a directory. Layers are given to the kernel
// one by one where it takes them so (6.8), otherwise as one option, by short
// names where it would be too long. The mount does not spread if target is below
// a [PrivateDir].
func (o Overlay) Mount(target string) error {
	if err := o.check(); err != nil {
		return err
	}
	// Once a kernel is known to take no layers one by one, it is not asked again.
	err := errNoLayerParam
	if !noLayerParam.Load() {
		err = o.mountEach(target)
	}
	switch {
	case errors.Is(err, errNoLayerParam):
		err = o.mountOnce(target)
	case errors.Is(err, unix.EINVAL):
		// Before 6.5 overlayfs has no parameters of its own. The kernel collects all of
		// them, whatever their names, and refuses them together when they are used.
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

// noLayerParam is set once only [Overlay.mountOnce] mounted what both were given. It is
// of the kernel and so of the process; other failures never set it.
var noLayerParam atomic.Bool

// errNoLayerParam means that the kernel takes no layers one by one.
var errNoLayerParam = errors.New("kernel knows no lowerdir+")

// mountEach gives the kernel one layer after the other. The new mount is attached to
// target only when it is complete. It returns errNoLayerParam where the kernel, or a
// seccomp filter, knows no such calls.
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
		// Descriptors stay open until the end: some kernels resolve a path here, others
		// when the file system is made.
		defer done()
		// Only the first is a sign: later ones may be EINVAL for reasons of their own.
		if err != nil && i == 0 && errors.Is(err, unix.EINVAL) {
			return errNoLayerParam
		}
		if err != nil {
			return explained(fs, fmt.Errorf("layer %s: %w", dir, err))
		}
	}
	if o.Upper != "" {
		for key, dir := range map[string]string{"upperdir": o.Upper, "workdir": o.Work} {
			// Unlike in lowerdir+, a backslash escapes in these (ovl_mount_dir of Linux).
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
	// Without an upper directory overlayfs is read-only anyway; the mount says so as
	// well, for those who read the mount table.
	attr := 0
	if o.Upper == "" {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return explained(fs, err)
	}
	defer func() { _ = unix.Close(mnt) }()
	// After this the descriptor of the mount can go.
	return unix.MoveMount(mnt, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// setPath gives a path to fsconfig, with a backslash before special characters. One that
// is too long for it goes by a descriptor, which done closes.
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

// explained adds what the kernel has to say, which is more than a number. Messages of a
// file system context begin with a letter for their kind and a space, which are cut
// off.
func explained(fs int, err error) error {
	buf := make([]byte, 1024)
	n, rerr := unix.Read(fs, buf)
	// Without a message the read fails, with ENODATA.
	if rerr != nil || n < 3 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(buf[2:n])))
}

// mountOnce mounts with one option for all layers. It is mount(2), for all kernels,
// with a page for all options together.
func (o Overlay) mountOnce(target string) error {
	opts, ok := o.options(o.Layers)
	if ok {
		return unix.Mount("overlay", target, "overlay", o.mountFlags(), opts)
	}
	// Descriptors have names of a few digits, in a directory of their own: the
	// working directory of a thread, which ends with it.
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
	// Buffered, so that the goroutine ends even if nobody were to read.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here
		// Threads share a working directory until one unshares it: the others must not
		// notice.
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

// mountFlags are the flags of mount(2).
func (o Overlay) mountFlags() uintptr {
	if o.Upper == "" {
		return unix.MS_RDONLY
	}
	return 0
}

// options are those of mount(2), and whether they fit.
func (o Overlay) options(lower []string) (string, bool) {
	escaped := make([]string, len(lower))
	for i, l := range lower {
		// A colon ends a layer and a comma an option, unless a backslash precedes.
		escaped[i] = escape(l, `\:,`)
	}
	out := append(o.flags(), "lowerdir="+strings.Join(escaped, ":"))
	if o.Upper != "" {
		out = append(out, "upperdir="+escape(o.Upper, `\,`), "workdir="+escape(o.Work, `\,`))
	}
	text := strings.Join(out, ",")
	return text, len(text) <= maxOptions
}

// escape puts a backslash before characters that separate.
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

// PrivateDir makes a directory a mount of itself from which no mount spreads, if
// it is not one already. Mounts below it are seen by nobody who did not see it.
func PrivateDir(dir string) error {
	// EINVAL is the kernel's answer for a directory that is no mount point.
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err == nil {
		return nil // it is a mount point
	} else if !errors.Is(err, unix.EINVAL) {
		return &os.PathError{Op: "make private", Path: dir, Err: err}
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind", Path: dir, Err: err}
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		// Left shared, it would spread what it is there to keep to itself.
		return errors.Join(&os.PathError{Op: "make private", Path: dir, Err: err}, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return nil
}
