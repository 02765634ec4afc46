//go:build !linux

package mount

import (
	"context"
	"errors"
	"time"
)

// Kernel is the Mounter of this machine. It works on Linux alone.
type Kernel struct {
	Classic  bool
	Patience time.Duration
	Program  string
}

// Mount is not supported here.
func (*Kernel) Mount(context.Context, FileSystem) error { return errors.ErrUnsupported }

// Bind is not supported here.
func (*Kernel) Bind(context.Context, Bind) error { return errors.ErrUnsupported }

// Unmount is not supported here.
func (*Kernel) Unmount(context.Context, string, How) error { return errors.ErrUnsupported }

// Table is empty here.
func (*Kernel) Table(context.Context) (Table, error) { return nil, nil }
