package crigc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// statfs reports the size of the file system of a path, and what those without
// privileges may still write, in bytes.
func statfs(path string) (capacity, available int64, err error) {
	var st unix.Statfs_t
	// A file system over a network may be interrupted by the signals with which Go
	// preempts goroutines.
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Statfs(path, &st)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	// Blocks are counted in fragments (statvfs(3)); kernels and file systems that
	// give none mean the block size.
	size := st.Frsize
	if size == 0 {
		size = st.Bsize
	}
	return int64(st.Blocks) * size, int64(st.Bavail) * size, nil
}
