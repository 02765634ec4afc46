package safefile

import (
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// madeUp are the magic numbers of file systems whose files the kernel generates. A read of
// such a file may block, as of /proc/kmsg, and an open may have effects. The numbers
// without a name are those of configfs and fusectl (linux/magic.h, fs/fuse/control.c).
var madeUp = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
	unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.PSTOREFS_MAGIC,
	unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, 0x62656570, 0x65735543,
}

// openLinked opens a file with O_PATH and follows all links. It returns ErrNotRegular for a file
// that the kernel generates.
func openLinked(path string) (int, error) {
	held, err := ignoringEINTR(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(held, &st); err != nil {
		_ = unix.Close(held)
		return -1, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if slices.Contains(madeUp, uint32(st.Type)) { //nolint:gosec // the magic numbers have 32 bits
		_ = unix.Close(held)
		return -1, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but a file of a kernel file system", ErrNotRegular)}
	}
	return held, nil
}
