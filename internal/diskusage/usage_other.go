//go:build !linux

package diskusage

import (
	"context"
	"errors"
)

// Statfs is not supported here.
func Statfs(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

// IsMount always returns false here.
func IsMount(string) bool { return false }

// Quota always returns ErrNoQuota here.
func Quota(string) (Usage, error) { return Usage{}, ErrNoQuota }

// Assign always returns ErrNoQuota here.
func Assign(...string) error { return ErrNoQuota }

// Survey walks a directory in several calls.
type Survey struct{}

// Unfinished always returns false here.
func (*Survey) Unfinished() bool { return false }

// Walk is not supported here.
func (*Survey) Walk(context.Context, string, Limits) (Usage, error) {
	return Usage{}, errors.ErrUnsupported
}
