//go:build !linux

package subpath

import (
	"errors"
	"io/fs"
	"os"
)

// Walk works on Linux alone.
type Walk struct{ NoOpenat2 bool }

// Open is not supported here.
func (Walk) Open(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Resolve is not supported here.
func (Walk) Resolve(string, string) (string, string, error) { return "", "", errors.ErrUnsupported }

// MakeDir is not supported here.
func (Walk) MakeDir(string, string, fs.FileMode) error { return errors.ErrUnsupported }
