//go:build !linux

package node

import (
	"context"
	"errors"
)

// FileLock is the lock of a file by which programs pass a node to each other.
type FileLock struct{}

// LockFile returns errors.ErrUnsupported: only Linux reports when other programs open a file.
func LockFile(context.Context, string) (*FileLock, error) { return nil, errors.ErrUnsupported }

// Wanted is never called.
func (*FileLock) Wanted(context.Context) error { return errors.ErrUnsupported }

// Release is never called.
func (*FileLock) Release() {}
