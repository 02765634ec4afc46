//go:build !linux

package kernel

import "os"

// Dir returns the files below the directory root.
func Dir(root string) DirFS { return DirFS{ioFiles{os.DirFS(root)}} }

// DirFS implements fs.FS and Files.
type DirFS struct{ ioFiles }
