//go:build !linux

package oom

import "errors"

// OpenKmsg opens the kernel's log, which only Linux has.
func OpenKmsg(bool) (Log, error) { return nil, errors.ErrUnsupported }
