//go:build !linux

package oom

import "errors"

// openKmsg opens the kernel's log, which only Linux has.
func openKmsg(bool) (Log, error) { return nil, errors.ErrUnsupported }
