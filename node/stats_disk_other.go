//go:build !linux

package node

import "errors"

// Statfs asks the file system that holds path; only Linux has it.
func Statfs(string) (StatsDisk, error) { return StatsDisk{}, errors.ErrUnsupported }
