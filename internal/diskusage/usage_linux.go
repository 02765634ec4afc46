package diskusage

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Statfs returns the usage of the file system of path.
func Statfs(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(st.Bsize) //nolint:unconvert // 32 bits on some machines
	if st.Frsize > 0 {
		block = int64(st.Frsize) //nolint:unconvert // 32 bits on some machines
	}
	u := Usage{
		Capacity: int64(st.Blocks) * block, Used: int64(st.Blocks-st.Bfree) * block, Available: int64(st.Bavail) * block,
		Inodes: int64(st.Files), InodesUsed: int64(st.Files - st.Ffree), InodesFree: int64(st.Ffree),
		At: time.Now(),
	}
	return u, nil
}

// IsMount reports whether path is a mount point, with statx(2) of Linux 5.8. On
// older kernels the result is always false.
func IsMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// fsxattr is the kernel's struct fsxattr (linux/fs.h).
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is the kernel's struct if_dqblk (linux/quota.h).
type dqblk struct {
	hardLimit, softLimit, space            uint64 // limits in KiB, space in bytes
	inodeHardLimit, inodeSoftLimit, inodes uint64
	blockTime, inodeTime                   uint64
	valid                                  uint32
	_                                      uint32
}

// Constants of linux/fs.h, linux/quota.h; the system call takes a descriptor
// since Linux 5.14.
const (
	fsGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	getQuota   = 0x800007   // Q_GETQUOTA
	prjQuota   = 2          // PRJQUOTA
)

// Quota returns the usage of dir's project, which the kernel counts. Capacity and
// Available are those of the file system, or of the project's limit if that is
// smaller.
func Quota(dir string) (Usage, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var attr fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsGetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 || attr.projid == 0 {
		return Usage{}, ErrNoQuota
	}
	var q dqblk
	cmd := uintptr(getQuota<<8 | prjQuota)
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), cmd, uintptr(attr.projid), uintptr(unsafe.Pointer(&q)), 0, 0); errno != 0 {
		return Usage{}, fmt.Errorf("%w: %w", ErrNoQuota, errno)
	}
	u, err := Statfs(dir)
	if err != nil {
		return Usage{}, err
	}
	u.Used, u.InodesUsed = int64(q.space), int64(q.inodes)
	if limit := int64(q.hardLimit) * 1024; limit > 0 && limit < u.Capacity {
		u.Capacity, u.Available = limit, min(u.Available, max(limit-u.Used, 0))
	}
	return u, nil
}
