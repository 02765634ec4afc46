package kubeletconfig

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

const (
	// maxBytes bounds all files of a configuration together. The largest that
	// anybody writes has some ten kilobytes.
	maxBytes = 1 << 20
	// maxExpanded bounds what a file comes to once its YAML aliases are replaced
	// by what they stand for.
	maxExpanded = 4 * maxBytes
)

// readFile reads a regular file of at most *left bytes and takes its size off
// *left. A FIFO or a device is refused without being opened, since that could
// block for ever or have effects of its own.
func readFile(path string, left *int64) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		var stat *fs.PathError
		if errors.As(err, &stat) {
			stat.Op = "open" // which is what the reader wanted
		}
		return nil, err
	}
	if err := regular(path, fi); err != nil {
		return nil, err
	}
	// It may have become another since.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if fi, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := regular(path, fi); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, *left+1))
	if err != nil {
		return nil, err
	}
	if *left -= int64(len(b)); *left < 0 {
		return nil, fmt.Errorf("%s: want a configuration of at most %d bytes in all its files", path, maxBytes)
	}
	return b, nil
}

func regular(path string, fi fs.FileInfo) error {
	switch {
	case fi.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s: want a regular file, got one of mode %v", path, fi.Mode().Type())
	}
	return nil
}
