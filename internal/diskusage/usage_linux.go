package diskusage

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Statfs returns the usage of the file system that contains path. It may block if the
// server of a network file system does not answer.
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

// IsMount reports whether path is a mount point. It needs statx(2) of Linux 5.8; on older
// kernels it always returns false.
func IsMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
