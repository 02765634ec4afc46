//go:build !linux

package mount

import (
	"context"
	"errors"
)

// Kernel is the Mounter of this machine. It works only on Linux.
type Kernel struct {
	Classic bool
	Program string
}

// Mount returns errors.ErrUnsupported.
func (*Kernel) Mount(context.Context, FileSystem) error { return errors.ErrUnsupported }

// Bind returns errors.ErrUnsupported.
func (*Kernel) Bind(context.Context, Bind) error { return errors.ErrUnsupported }

// Unmount returns errors.ErrUnsupported.
func (*Kernel) Unmount(context.Context, string, How) error { return errors.ErrUnsupported }

// Table returns an empty table.
func (*Kernel) Table(context.Context) (Table, error) { return nil, nil }
