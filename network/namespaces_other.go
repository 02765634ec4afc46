//go:build !linux

package network

import (
	"context"
	"errors"
	"os"
)

// kernelSpaces returns errors: only Linux has network namespaces.
type kernelSpaces struct{}

func (kernelSpaces) Make(context.Context, string, *os.File) (uint64, error) {
	return 0, &Error{FailedPrecondition, errors.ErrUnsupported}
}

func (kernelSpaces) Look(string) (Space, error) { return Space{}, errors.ErrUnsupported }

func (kernelSpaces) Remove(string, uint64) error { return errors.ErrUnsupported }

func (kernelSpaces) List(string, int) ([]string, error) { return nil, errors.ErrUnsupported }
