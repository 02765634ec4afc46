//go:build !linux

package node

import "errors"

// OpenKmsg opens the kernel's log, which only Linux has.
func OpenKmsg(bool) (KernelLog, error) { return nil, errors.ErrUnsupported }
