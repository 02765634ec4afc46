//go:build !linux

package stats

import (
	"io/fs"
	"os"
)

// cgroupFS is os.DirFS. The kernel's files that the shortcut is for are Linux's.
func cgroupFS(root string) fs.FS { return os.DirFS(root) }
