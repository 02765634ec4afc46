// Package volumefile reads files of pods' volumes, which the pods themselves
// may have written. It is what podspec.Input.ReadFile is for, kept apart so
// that the compiler has no business with a disk.
package volumefile

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// Limit is how large a file may be, in bytes (KEP-3721).
const Limit = 64 << 10

// Read returns the content of the file at path below the directory dir. A
// file that is not there is an [io/fs.ErrNotExist].
//
// Whoever wrote the volume is not trusted: neither path nor a symbolic link
// leads out of dir, what is no regular file is not read and does not block,
// and nothing larger than [Limit] comes back.
func Read(dir, path string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	// A named pipe would wait for its writer.
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, Limit+1))
	if err != nil {
		return nil, err
	}
	if len(content) > Limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, Limit)
	}
	return content, nil
}
