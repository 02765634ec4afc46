//go:build !linux

package diskusage

import (
	"context"
	"errors"
)

// Statfs returns the usage of the file system of path.
func Statfs(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

// IsMount reports whether path is a mount point.
func IsMount(string) bool { return false }

// Quota returns the usage of dir's project.
func Quota(string) (Usage, error) { return Usage{}, ErrNoQuota }

// Assign gives directories a project of their own.
func Assign(...string) error { return ErrNoQuota }

// Survey walks a directory in several calls.
type Survey struct{}

// Unfinished reports whether the last call did not reach the end.
func (*Survey) Unfinished() bool { return false }

// Walk adds up the usage of dir.
func (*Survey) Walk(context.Context, string, Limits) (Usage, error) {
	return Usage{}, errors.ErrUnsupported
}
