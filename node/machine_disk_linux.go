package node

import "golang.org/x/sys/unix"

// diskCapacity returns the size of dir's file system, in bytes.
func diskCapacity(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Blocks) * s.Bsize, nil
}

// CgroupV2 reports whether cgroup v2 is used, by the magic number of its file
// system (statfs(2)).
func CgroupV2() bool {
	var s unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}
