package diskusage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsxattr is the kernel's struct fsxattr (linux/fs.h).
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is the kernel's struct if_dqblk (linux/quota.h).
type dqblk struct {
	hardLimit, softLimit, space            uint64 // limits in KiB, used space in bytes
	inodeHardLimit, inodeSoftLimit, inodes uint64
	blockTime, inodeTime                   uint64
	valid                                  uint32
	_                                      uint32
}

// Constants of linux/fs.h and linux/quota.h. The system call quotactl_fd exists since
// Linux 5.14.
const (
	fsGetXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr  = 0x401c5820 // FS_IOC_FSSETXATTR
	projInherit = 0x200      // FS_XFLAG_PROJINHERIT
	getQuota    = 0x800007   // Q_GETQUOTA
	prjQuota    = 2          // PRJQUOTA
)

// Assign chooses a random project ID from firstProject to firstProject+projects-1 of which the
// kernel counts no files; it tries at most tries IDs. The kubelet's IDs begin at 1048577. XFS keeps
// a record of each ID that was ever used, so the range is small.
const (
	firstProject = 1 << 30
	projects     = 1 << 16
	tries        = 64
)

// Quota returns the usage of the project that Assign gave to dir, including removed files that
// processes have open. Use a directory that processes of pods cannot reach: the owner of a
// directory may change its project. Capacity and Available are those of the file system.
func Quota(dir string) (Usage, error) {
	f, err := openDir(dir)
	if err != nil {
		return Usage{}, err
	}
	defer func() { _ = f.Close() }()
	attr, err := attributes(f)
	if err != nil || attr.projid < firstProject || attr.projid >= firstProject+projects {
		return Usage{}, ErrNoQuota
	}
	q, err := quotaOf(f, attr.projid)
	if err != nil {
		return Usage{}, err
	}
	u, err := Statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	u.Used, u.InodesUsed = int64(q.space), int64(q.inodes)
	return u, nil
}

// Assign gives directories a common new project. The directories must be empty and on one file
// system. All files that are created below them later belong to the project. The project has no
// limits: the kernel only counts its usage for Quota. A project without files does not exist, so
// nothing has to be stored or removed. If a directory has a project already, Assign returns nil and
// changes nothing. It returns ErrNoQuota if the kernel does not count projects on the file system,
// or if a directory is not empty. To measure the project, call Quota with the last directory: it
// has the project only if all directories have it.
//
// NB: A process outside of a user namespace may change the project of its own files.
func Assign(dirs ...string) error {
	files := make([]*os.File, 0, len(dirs))
	for _, dir := range dirs {
		f, err := openDir(dir)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if attr, err := attributes(f); err != nil || attr.projid != 0 {
			return err
		}
		if names, _ := f.Readdirnames(1); len(names) > 0 {
			return fmt.Errorf("%s: %w: the directory is not empty", dir, ErrNoQuota)
		}
		files = append(files, f)
	}
	for range tries {
		id := firstProject + rand.Uint32N(projects)
		if q, err := quotaOf(files[0], id); err != nil {
			return err
		} else if q.space > 0 || q.inodes > 0 {
			continue
		}
		err := setProject(files, id)
		if err == nil {
			// Another process may have chosen the same ID in the meantime.
			var q dqblk
			if q, err = quotaOf(files[0], id); err == nil && q.inodes == uint64(len(files)) {
				return nil
			}
		}
		slices.Reverse(files)
		err = errors.Join(err, setProject(files, 0))
		slices.Reverse(files)
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %d project IDs from %d on are in use", ErrNoQuota, tries, firstProject)
}

func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func attributes(f *os.File) (fsxattr, error) {
	var attr fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsGetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		return attr, fmt.Errorf("%w: %w", ErrNoQuota, errno)
	}
	return attr, nil
}

// setProject sets the project of directories, and of files that are created in them later. The ID 0
// means no project.
func setProject(dirs []*os.File, id uint32) error {
	for _, f := range dirs {
		attr, err := attributes(f)
		if err != nil {
			return err
		}
		attr.projid, attr.xflags = id, attr.xflags&^projInherit
		if id != 0 {
			attr.xflags |= projInherit
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsSetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
			return fmt.Errorf("%s: %w: set project %d: %w", f.Name(), ErrNoQuota, id, errno)
		}
	}
	return nil
}

// quotaOf returns the kernel's counters for a project on the file system of f. For a project
// without files they are 0.
func quotaOf(f *os.File, project uint32) (dqblk, error) {
	var q dqblk
	cmd := uintptr(getQuota<<8 | prjQuota)
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), cmd, uintptr(project), uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno != 0 && errno != unix.ENOENT { // XFS returns ENOENT for a project without files
		return q, fmt.Errorf("%w: %w", ErrNoQuota, errno)
	}
	return q, nil
}
