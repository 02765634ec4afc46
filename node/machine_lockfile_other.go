//go:build !linux

package node

import (
	"context"
	"errors"
)

// FileLock is a lock on a file that is shared by programs that may run the node. It
// does not work on this system.
type FileLock struct{}

// LockFile returns errors.ErrUnsupported: only Linux reports when other programs open a file.
func LockFile(context.Context, string) (*FileLock, error) { return nil, errors.ErrUnsupported }

// Wanted returns errors.ErrUnsupported. It is never called, since LockFile returns no
// lock.
func (*FileLock) Wanted(context.Context) error { return errors.ErrUnsupported }

// Release does nothing.
func (*FileLock) Release() {}
