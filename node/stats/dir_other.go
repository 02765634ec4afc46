//go:build !linux

package stats

import (
	"io/fs"
	"os"
)

// Dir is os.DirFS.
func Dir(root string) fs.FS { return os.DirFS(root) }
