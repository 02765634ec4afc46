//go:build !linux

package stats

import "errors"

// Statfs asks the file system that holds path; only Linux has it.
func Statfs(string) (Disk, error) { return Disk{}, errors.ErrUnsupported }
