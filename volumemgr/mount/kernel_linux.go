package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/diskusage"
)

// unmountTimeout is the time after which the unmount of a network file system is forced, and after
// which a forced unmount is replaced by a detach. The kubelet has the same.
const unmountTimeout = time.Minute

// Kernel is the Mounter of this machine. The zero value is ready to use; do not copy it. It needs
// CAP_SYS_ADMIN.
//
// A call that a server blocks is abandoned when its context ends. Until it returns, further
// attempts of the same call wait for it, so that an unreachable server blocks one thread for each
// mount.
type Kernel struct {
	// Classic avoids the mount API of Linux 5.12, as if the kernel were older.
	Classic bool
	// Program is the mount program for file systems with helpers; "mount".
	Program string

	once  sync.Once
	calls detached.Group[struct{}] // calls that may block on a server
}

// maxHung limits the number of hung calls, since a Go program ends at 10,000 threads.
const maxHung = 1000

// flagOf returns the mount flags that an option of mount(8) sets and clears; known is false for
// options of the file system.
func flagOf(option string) (set, clear uintptr, known bool) {
	switch option {
	case "ro":
		return unix.MS_RDONLY, 0, true
	case "rw":
		return 0, unix.MS_RDONLY, true
	case "nosuid":
		return unix.MS_NOSUID, 0, true
	case "suid":
		return 0, unix.MS_NOSUID, true
	case "nodev":
		return unix.MS_NODEV, 0, true
	case "dev":
		return 0, unix.MS_NODEV, true
	case "noexec":
		return unix.MS_NOEXEC, 0, true
	case "exec":
		return 0, unix.MS_NOEXEC, true
	case "nosymfollow":
		return unix.MS_NOSYMFOLLOW, 0, true
	case "noatime":
		return unix.MS_NOATIME, 0, true
	case "nodiratime":
		return unix.MS_NODIRATIME, 0, true
	case "relatime":
		return unix.MS_RELATIME, 0, true
	case "strictatime":
		return unix.MS_STRICTATIME, 0, true
	case "sync":
		return unix.MS_SYNCHRONOUS, 0, true
	case "dirsync":
		return unix.MS_DIRSYNC, 0, true
	case "defaults":
		return 0, 0, true
	}
	return 0, 0, false
}

// split separates mount flags from options of the file system.
func split(options []string) (flags uintptr, rest []string) {
	for _, o := range options {
		set, clr, known := flagOf(o)
		if !known {
			rest = append(rest, o)
			continue
		}
		flags = flags&^clr | set
	}
	return flags, rest
}

// magic returns a path to an open file that no other process can redirect.
func magic(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// open opens a mount point as O_PATH, without following a link at its last element.
func open(target string) (*os.File, error) {
	fd, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: target, Err: err}
	}
	f := os.NewFile(uintptr(fd), target)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(&os.PathError{Op: "stat", Path: target, Err: err}, f.Close())
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil, errors.Join(&os.PathError{Op: "mount", Path: target, Err: unix.ELOOP}, f.Close())
	}
	return f, nil
}

// Mount mounts a file system.
func (k *Kernel) Mount(ctx context.Context, f FileSystem) error {
	if err := checkOptions(f.Options); err != nil {
		return err
	}
	if f.Helper {
		return k.await(ctx, fmt.Sprintf("mount %#v", f), func() error {
			target, err := open(f.Target)
			if err != nil {
				return err
			}
			_ = target.Close()
			return k.helper(ctx, f)
		})
	}
	flags, rest := split(f.Options)
	// The call owns the descriptor: if the call is abandoned, the descriptor's number must not be
	// reused for another file.
	return k.await(ctx, fmt.Sprintf("mount %#v", f), func() error {
		target, err := open(f.Target)
		if err != nil {
			return err
		}
		defer func() { _ = target.Close() }()
		if err := unix.Mount(f.Source, magic(target), f.Type, flags, strings.Join(rest, ",")); err != nil {
			return &os.PathError{Op: "mount " + f.Type, Path: f.Target, Err: err}
		}
		return nil
	})
}

// Unmount unmounts the topmost mount at target.
func (k *Kernel) Unmount(ctx context.Context, target string, how How) error {
	tries := []int{0}
	if how == Network {
		tries = []int{0, unix.MNT_FORCE, unix.MNT_DETACH}
	}
	var errs []error
	for i, flag := range tries {
		err := k.unmount(ctx, target, flag, i < len(tries)-1)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINVAL):
			// The kernel returns this error for a path that is not a mount point, including
			// links.
			return fmt.Errorf("%s: %w", target, ErrNotMounted)
		}
		errs = append(errs, &os.PathError{Op: "unmount", Path: target, Err: err})
		if errors.Is(err, unix.ENOENT) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (k *Kernel) unmount(ctx context.Context, target string, flag int, limit bool) error {
	if limit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, unmountTimeout)
		defer cancel()
	}
	return k.await(ctx, fmt.Sprintf("unmount %d %s", flag, target), func() error { return unix.Unmount(target, flag|unix.UMOUNT_NOFOLLOW) })
}

// Share makes the mount that contains path shared. Links in path are not resolved. On kernels
// before Linux 5.8 this is the mount at "/".
func (k *Kernel) Share(ctx context.Context, path string) error {
	return k.await(ctx, "share "+path, func() error {
		point := filepath.Clean(path)
		for point != "/" && !diskusage.IsMount(point) {
			point = filepath.Dir(point)
		}
		if err := unix.Mount("", point, "", unix.MS_SHARED, ""); err != nil {
			return &os.PathError{Op: "make mount shared", Path: point, Err: err}
		}
		return nil
	})
}

// await calls f and returns its result. If ctx ends first, it returns at once, since the kernel
// may block f until a server answers. key identifies the call.
func (k *Kernel) await(ctx context.Context, key string, f func() error) error {
	k.once.Do(func() { k.calls.Limit = maxHung })
	_, err := k.calls.Do(ctx, key, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Table returns this process's mount table.
func (k *Kernel) Table(ctx context.Context) (Table, error) {
	data, err := mountinfo(ctx)
	if err != nil {
		return nil, err
	}
	return ParseTable(data)
}

// clear reports that nothing is mounted at path, which Resolve returned. It asks the kernel to
// resolve the path without crossing into another mount, and does not access a mounted file
// system. That is cheaper than reading the table, which the kernel writes anew for each reader
// and which has several lines for each pod.
func (k *Kernel) clear(path string) bool {
	if path == "/" {
		return false
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, filepath.Base(path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

// maxBare is how many files and directories bare checks. Most volumes and directories of pods have
// fewer when they are removed. For more, reading the mount table is cheaper.
const maxBare = 64

// bare reports that nothing is mounted at path and below it, as clear does for path alone.
func (k *Kernel) bare(path string) bool {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if path == "/" || err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	left := maxBare
	return bareAt(dir, filepath.Base(path), &left)
}

// bareAt does the work of bare for a name in an open directory. It decrements *left for each file
// and directory, and returns false when *left is used up.
func bareAt(dir int, name string, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return false
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return true
	}
	in, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(in), name)
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(*left + 1)
	if err != nil && !errors.Is(err, io.EOF) || len(names) > *left {
		return false
	}
	for _, n := range names {
		if !bareAt(in, n, left) {
			return false
		}
	}
	return true
}

// Under returns the mounts at and below path, which must be clean and without symbolic links.
func (k *Kernel) Under(ctx context.Context, path string) (Table, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if k.bare(path) {
		return nil, nil
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	if _, err := b.ReadFrom(f); err != nil {
		return nil, err
	}
	return parseUnder(b.Bytes(), path) // the result does not refer to the buffer
}

// buffers are reused to read the table. It is read for each volume that is mounted or measured,
// and has many lines of which at most one is needed.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func mountinfo(ctx context.Context) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return os.ReadFile("/proc/self/mountinfo")
}
