//go:build !linux

package stats

import (
	"io/fs"
	"os"
)

// cgroupFS is os.DirFS: only Linux has cgroup files.
func cgroupFS(root string) fs.FS { return os.DirFS(root) }
