package podruntime

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxVolumeFile is how large a file with variables may be, in bytes (KEP-3721).
const maxVolumeFile = 64 << 10

// readVolumeFile is podspec.Input.ReadFile: it returns the content of the file
// at path below the directory dir. A file that is not there is an
// fs.ErrNotExist.
//
// Whoever wrote the volume is not trusted: neither path nor a symbolic link
// leads out of dir, what is no regular file is not read and does not block,
// and nothing larger than maxVolumeFile comes back.
func readVolumeFile(dir, path string) ([]byte, error) {
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
	content, err := io.ReadAll(io.LimitReader(f, maxVolumeFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxVolumeFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxVolumeFile)
	}
	return content, nil
}
