//go:build !linux

package stats

import (
	"io/fs"
	"os"
)

// CgroupFS is os.DirFS. The kernel's files that the shortcut is for are Linux's.
func CgroupFS(root string) fs.FS { return os.DirFS(root) }
