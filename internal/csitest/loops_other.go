//go:build !linux

package csitest

import (
	"context"
	"errors"
	"testing"
)

// Loops implements Disks with loop devices, on Linux only.
type Loops struct{}

// NewLoops skips the test.
func NewLoops(t testing.TB) *Loops {
	t.Skip("needs Linux")
	return nil
}

// Image returns "".
func (*Loops) Image(string) string { return "" }

// Attach is not supported here.
func (*Loops) Attach(context.Context, string, string) (string, error) {
	return "", errors.ErrUnsupported
}

// Grow is not supported here.
func (*Loops) Grow(context.Context, string, int64) error { return errors.ErrUnsupported }

// Detach is not supported here.
func (*Loops) Detach(string) error { return errors.ErrUnsupported }
