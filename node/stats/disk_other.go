//go:build !linux

package stats

import (
	"errors"
	"io/fs"
)

// statfs asks the file system that holds path; only Linux has it.
func statfs(string) (Disk, error) { return Disk{}, errors.ErrUnsupported }

// onDisk is a file's size, in bytes.
func onDisk(info fs.FileInfo) uint64 { return uint64(info.Size()) }
