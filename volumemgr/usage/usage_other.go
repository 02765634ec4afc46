//go:build !linux

package usage

import (
	"context"
	"errors"
)

// Statfs returns what the file system says that path is on.
func Statfs(string) (Usage, error) { return Usage{}, errors.ErrUnsupported }

// Quota returns what the kernel has counted for dir's project.
func Quota(string) (Usage, error) { return Usage{}, ErrNoQuota }

// Walk adds up what dir takes.
func Walk(context.Context, string, Limits) (Usage, error) { return Usage{}, errors.ErrUnsupported }
