//go:build !linux

package node

import (
	"errors"
	"io/fs"
)

// Statfs asks the file system that holds path; only Linux has it.
func Statfs(string) (StatsDisk, error) { return StatsDisk{}, errors.ErrUnsupported }

// onDisk is a file's size, in bytes.
func onDisk(info fs.FileInfo) uint64 { return uint64(info.Size()) }
