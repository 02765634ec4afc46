package kernel

import (
	"io/fs"
	"os"

	"github.com/nodewright/nodewright/internal/kernelfile"
)

// Dir returns the files of a kernel file system, such as /proc, that is mounted at the directory
// root. It reads a file with four system calls, half as many as os.DirFS: one pass over a full node
// opens more than a thousand files.
func Dir(root string) DirFS {
	return DirFS{ioFiles{os.DirFS(root)}, root + "/"} //nolint:forbidigo // of the kernel
}

// DirFS implements fs.FS and Files.
type DirFS struct {
	ioFiles
	root string
}

// Read implements Files.
func (d DirFS) Read(name string, limit int) ([]byte, error) {
	// The name is appended to the root, so it must not contain "..".
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	b, err := kernelfile.Read(d.root+name, 1024, limit+1)
	if err != nil {
		return nil, classify(&fs.PathError{Op: "read", Path: d.root + name, Err: err})
	}
	return bounded(d.root+name, b, limit)
}
