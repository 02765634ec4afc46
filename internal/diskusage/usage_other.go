//go:build !linux

package diskusage

import (
	"context"
	"errors"
)

// Statfs returns what the file system says that path is on.
func Statfs(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

// IsMount reports whether something is mounted at path.
func IsMount(string) bool { return false }

// Quota returns what the kernel has counted for dir's project.
func Quota(string) (Usage, error) { return Usage{}, ErrNoQuota }

// Survey walks a directory in several calls.
type Survey struct{}

// Unfinished reports whether the last call did not get to the end.
func (*Survey) Unfinished() bool { return false }

// Walk adds up what dir takes.
func (*Survey) Walk(context.Context, string, Limits) (Usage, error) {
	return Usage{}, errors.ErrUnsupported
}
