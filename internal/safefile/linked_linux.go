package safefile

import (
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// madeUp are the file systems whose files are the kernel's answers: reading one
// may wait for what happens next, as that of /proc/kmsg does, and opening one may
// have effects. The numbers without a name are configfs' and fusectl's
// (linux/magic.h, fs/fuse/control.c).
var madeUp = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
	unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC, unix.PSTOREFS_MAGIC,
	unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.RDTGROUP_SUPER_MAGIC, 0x62656570, 0x65735543,
}

// openLinked takes hold of a file wherever its links lead.
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
		return -1, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w but one that the kernel makes up", ErrNotRegular)}
	}
	return held, nil
}
