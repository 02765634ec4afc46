//go:build !linux

package network

import (
	"context"
	"errors"
	"os"
	"time"
)

func takeGuard(context.Context, string, string, time.Duration) (*os.File, bool, error) {
	return nil, false, errors.ErrUnsupported
}

func dropGuard(string, string) error { return nil }

func lockFile(string) (func(), error) { return func() {}, nil }
