package crigc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// statfs returns the size of a path's file system and the space that is available to
// unprivileged users, in bytes.
func statfs(path string) (capacity, available int64, err error) {
	var st unix.Statfs_t
	// Go's preemption signals may interrupt the call on network file systems.
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	// Blocks are counted in fragments (statvfs(3)), or in the block size if there is no fragment
	// size.
	size := st.Frsize
	if size == 0 {
		size = st.Bsize
	}
	return int64(st.Blocks) * size, int64(st.Bavail) * size, nil
}
