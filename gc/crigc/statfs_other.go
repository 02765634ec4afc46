//go:build !linux

package crigc

import (
	"errors"
	"fmt"
)

// statfs works only on Linux.
func statfs(path string) (capacity, available int64, err error) {
	return 0, 0, fmt.Errorf("statfs %s: %w", path, errors.ErrUnsupported)
}
