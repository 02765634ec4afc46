//go:build !linux

package kernel

import "os"

// Dir returns the file system of the kernel that is mounted at a directory.
func Dir(root string) DirFS { return DirFS{ioFiles{os.DirFS(root)}} }

// DirFS implements fs.FS and Files.
type DirFS struct{ ioFiles }
