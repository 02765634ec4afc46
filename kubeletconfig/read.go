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
	// maxBytes is the maximum size of all files of a configuration together. A usual configuration
	// has some ten kilobytes.
	maxBytes = 1 << 20
	// maxExpanded is the maximum size of a file after its YAML aliases are expanded.
	maxExpanded = 4 * maxBytes
)

// readFile reads a regular file of at most *left bytes, and subtracts its size from *left. It
// rejects a FIFO or a device without opening it, because an open could block forever or have side
// effects.
func readFile(path string, left *int64) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		var stat *fs.PathError
		if errors.As(err, &stat) {
			stat.Op = "open" // the caller wants to read the file
		}
		return nil, err
	}
	if err := regular(path, fi); err != nil {
		return nil, err
	}
	// The file may have been replaced since the check, so the open must not block either.
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
