//go:build !linux

package network

import (
	"errors"
	"os"
)

func duplicate(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
