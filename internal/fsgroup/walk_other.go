//go:build !linux

package fsgroup

import (
	"context"
	"errors"
)

// Apply is not supported here.
func Apply(context.Context, Request) error { return errors.ErrUnsupported }
