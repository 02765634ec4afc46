package spaces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodewright/nodewright/internal/detached"
	"github.com/nodewright/nodewright/internal/nspin"
	"github.com/nodewright/nodewright/internal/safefile"
)

// kinds are the pinned namespaces.
var kinds = []struct {
	suffix string
	proc   string // its name in /proc/PID/ns
	flag   int
}{
	{userSuffix, "user", unix.CLONE_NEWUSER},
	{ipcSuffix, "ipc", unix.CLONE_NEWIPC},
	{utsSuffix, "uts", unix.CLONE_NEWUTS},
}

// Make creates the namespaces of a sandbox and its /dev/shm, and returns their paths. If all of
// them exist, Make changes nothing. If only some of them exist, Make creates all again. After an
// error nothing is left, unless the removal failed too.
func (s *Spaces) Make(ctx context.Context, r Request) (Paths, error) {
	if err := r.check(); err != nil {
		return Paths{}, err
	}
	return detached.Next(ctx, &s.queue, r.ID, func() (Paths, error) {
		p := s.paths(r)
		if s.complete(p) {
			return p, nil
		}
		err := s.remove(r.ID)
		if err == nil {
			err = s.make(ctx, r, p)
		}
		if err != nil {
			if undoErr := s.remove(r.ID); undoErr != nil {
				err = fmt.Errorf("%w; undo: %w", err, undoErr)
			}
			return Paths{}, err
		}
		return p, nil
	})
}

// complete reports whether all namespaces and mounts of a sandbox exist. It does not
// compare the mappings and the host name, since a sandbox's configuration does not change.
func (s *Spaces) complete(p Paths) bool {
	any := false
	for _, k := range kinds {
		path := p.of(k.flag)
		if path == "" {
			continue
		}
		any = true
		if at, err := nspin.Look(path, k.flag); err != nil || at.Kind != nspin.Pinned {
			return false
		}
	}
	if p.Shm != HostShm {
		any = true
		if mounted, err := isMounted(p.Shm, unix.TMPFS_MAGIC); err != nil || !mounted {
			return false
		}
	}
	return any
}

func (p Paths) of(flag int) string {
	switch flag {
	case unix.CLONE_NEWIPC:
		return p.IPC
	case unix.CLONE_NEWUTS:
		return p.UTS
	default:
		return p.User
	}
}

func (s *Spaces) make(ctx context.Context, r Request, p Paths) error {
	for _, dir := range []string{nsDir, shmDir} {
		if err := nspin.ShareDir(filepath.Join(s.cfg.StateDir, dir)); err != nil {
			return err
		}
	}
	flags := 0
	for _, k := range kinds {
		if path := p.of(k.flag); path != "" {
			flags |= k.flag
			if err := nspin.MakePoint(path); err != nil {
				return err
			}
		}
	}
	var err error
	switch {
	case flags&unix.CLONE_NEWUSER != 0:
		err = byChild(ctx, r.User, p, flags)
	case flags != 0:
		err = byThread(p, flags)
	}
	if err == nil && r.UTS && r.Hostname != "" {
		err = s.within(r.ID, unix.CLONE_NEWUTS, "", func() error {
			return os.NewSyscallError("sethostname", unix.Sethostname([]byte(r.Hostname)))
		})
	}
	if err == nil && r.IPC {
		err = s.makeShm(r)
	}
	return err
}

// byThread creates namespaces that belong to the host's user namespace, on a thread of
// its own.
func byThread(p Paths, flags int) error {
	const proc = "/proc/thread-self/ns/"
	var err error
	nspin.OnThread(func() (back bool) {
		var homes []*os.File
		for _, k := range kinds {
			if flags&k.flag == 0 {
				continue
			}
			home, openErr := nspin.Open(proc + k.proc)
			if openErr != nil {
				err = openErr
				return true
			}
			defer func() { _ = home.Close() }()
			homes = append(homes, home)
		}
		if err = os.NewSyscallError("unshare", unix.Unshare(flags)); err != nil {
			return true
		}
		err = pin(p, flags, func(name string) (*os.File, error) { return nspin.Open(proc + name) })
		for _, home := range homes {
			if enter(home, 0) != nil {
				return false
			}
		}
		return true
	})
	return err
}

// byChild creates a user namespace in a child process, and the other namespaces of the sandbox so
// that they belong to it.
func byChild(ctx context.Context, m *Mappings, p Paths, flags int) error {
	child, err := nspin.StartChild(ctx, nil, flags)
	if err != nil {
		return err
	}
	defer child.End()
	for name, ids := range map[string][]*runtimeapi.IDMapping{"uid_map": m.UIDs, "gid_map": m.GIDs} {
		if err := writeProc(fmt.Sprintf("/proc/%d/%s", child.PID(), name), mapping(ids)); err != nil {
			return err
		}
	}
	return pin(p, flags, child.Open)
}

func mapping(ids []*runtimeapi.IDMapping) []byte {
	var b bytes.Buffer
	for _, m := range ids {
		fmt.Fprintf(&b, "%d %d %d\n", m.GetContainerId(), m.GetHostId(), m.GetLength())
	}
	return b.Bytes()
}

func pin(p Paths, flags int, open func(name string) (*os.File, error)) error {
	for _, k := range kinds {
		if flags&k.flag == 0 {
			continue
		}
		space, err := open(k.proc)
		if err != nil {
			return err
		}
		_, err = nspin.Bind(space, p.of(k.flag))
		_ = space.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// enter moves the calling thread into a namespace. If kind is 0, the namespace may be of any
// kind.
func enter(space *os.File, kind int) error {
	_, err := nspin.Control(space, func(fd int) (int, error) { return 0, unix.Setns(fd, kind) })
	if err != nil {
		return &fs.PathError{Op: "enter", Path: space.Name(), Err: err}
	}
	return nil
}

// makeShm mounts the tmpfs for the sandbox's /dev/shm.
func (s *Spaces) makeShm(r Request) error {
	path := s.shm(r.ID)
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	options := []string{"mode=1777", fmt.Sprintf("size=%d", s.cfg.ShmSize)}
	if r.User != nil { // it belongs to root of the pod
		options = append(options, fmt.Sprintf("uid=%d", hostID(r.User.UIDs)), fmt.Sprintf("gid=%d", hostID(r.User.GIDs)))
	}
	err := unix.Mount("shm", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, strings.Join(options, ","))
	if err != nil {
		return &fs.PathError{Op: "mount", Path: path, Err: err}
	}
	return nil
}

// hostID returns the ID on the host to which the pod's ID 0 is mapped.
func hostID(ids []*runtimeapi.IDMapping) uint32 {
	for _, m := range ids {
		if m.GetContainerId() == 0 {
			return m.GetHostId()
		}
	}
	return 0
}

// HoldSys mounts the sysfs of a sandbox's network namespace, writable, until Remove. A network
// namespace has only one sysfs, which exists as long as it has a mount. If its first mount is
// read-only, all mounts are. Without HoldSys, a privileged container could not write to /sys if
// another container of the sandbox had started before. network is the path of the namespace.
func (s *Spaces) HoldSys(ctx context.Context, id, network string) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := detached.Next(ctx, &s.queue, id, func() (struct{}, error) {
		path := s.sys(id)
		if err := nspin.ShareDir(filepath.Dir(path)); err != nil {
			return struct{}{}, err
		}
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return struct{}{}, err
		}
		if mounted, err := isMounted(path, unix.SYSFS_MAGIC); err != nil || mounted {
			return struct{}{}, err
		}
		return struct{}{}, s.within(id, unix.CLONE_NEWNET, network, func() error {
			if err := unix.Mount("sysfs", path, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
				return &fs.PathError{Op: "mount", Path: path, Err: err}
			}
			return nil
		})
	})
	return err
}

// isMounted reports whether a file system with this magic number is mounted at a directory.
func isMounted(path string, kind int64) (bool, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var here, above unix.Stat_t
	var on unix.Statfs_t
	if err := unix.Fstat(fd, &here); err != nil {
		return false, err
	}
	if err := unix.Fstatfs(fd, &on); err != nil {
		return false, err
	}
	if err := unix.Lstat(filepath.Dir(path), &above); err != nil {
		return false, err
	}
	return on.Type == kind && here.Dev != above.Dev, nil
}

// Remove removes everything that was created for a sandbox. Processes in its namespaces stay
// there. It is not an error if nothing exists.
func (s *Spaces) Remove(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := detached.Next(ctx, &s.queue, id, func() (struct{}, error) { return struct{}{}, s.remove(id) })
	return err
}

// maxStacked is the maximum number of stacked mounts that are unmounted from one directory.
const maxStacked = 16

func (s *Spaces) remove(id string) error {
	var errs []error
	for _, k := range kinds {
		errs = append(errs, nspin.Remove(s.path(id, k.suffix), k.flag, 0))
	}
	for _, path := range []string{s.shm(id), s.sys(id)} {
		errs = append(errs, unmountAll(path))
		if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			errs = append(errs, &fs.PathError{Op: "remove", Path: path, Err: err})
		}
	}
	return errors.Join(errs...)
}

// unmountAll unmounts all mounts at a directory.
func unmountAll(path string) error {
	for range maxStacked {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			break // not mounted any more
		}
		if err != nil {
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
	return nil
}

// Look returns the paths of the existing namespaces of a sandbox.
func (s *Spaces) Look(id string) (Paths, error) {
	if err := checkID(id); err != nil {
		return Paths{}, err
	}
	p := Paths{Shm: HostShm}
	for _, k := range kinds {
		path := s.path(id, k.suffix)
		at, err := nspin.Look(path, k.flag)
		if err != nil {
			return Paths{}, err
		}
		if at.Kind != nspin.Pinned {
			continue
		}
		switch k.flag {
		case unix.CLONE_NEWIPC:
			p.IPC = path
		case unix.CLONE_NEWUTS:
			p.UTS = path
		default:
			p.User = path
		}
	}
	mounted, err := isMounted(s.shm(id), unix.TMPFS_MAGIC)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Paths{}, err
	}
	if mounted {
		p.Shm = s.shm(id)
	}
	return p, nil
}

// OpenUser opens the user namespace of a sandbox, so that other namespaces can be created to
// belong to it. The error is fs.ErrNotExist if the sandbox has no user namespace. The caller
// closes the file.
func (s *Spaces) OpenUser(id string) (*os.File, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return nspin.OpenPinned(s.path(id, userSuffix), unix.CLONE_NEWUSER)
}

// maxEntries is the maximum number of directory entries that List reads, far beyond 32,768
// mounts, the least that a mount namespace has room for.
const maxEntries = 1 << 17

// List returns the IDs of all sandboxes of which files exist, in no order. It does so even for
// sandboxes without a record.
func (s *Spaces) List() ([]string, error) {
	found := map[string]bool{}
	for _, dir := range []string{nsDir, shmDir, sysDir} {
		names, err := safefile.Names(filepath.Join(s.cfg.StateDir, dir), maxEntries)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range names {
			for _, k := range kinds {
				name = strings.TrimSuffix(name, k.suffix)
			}
			if checkID(name) == nil {
				found[name] = true
			}
		}
	}
	ids := make([]string, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	return ids, nil
}
