//go:build !linux

package mount

import (
	"errors"
	"io/fs"
	"os"
)

// SubPathWalk works on Linux alone.
type SubPathWalk struct{ NoOpenat2 bool }

// Open is not supported here.
func (SubPathWalk) Open(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Resolve is not supported here.
func (SubPathWalk) Resolve(string, string) (string, string, error) {
	return "", "", errors.ErrUnsupported
}

// MakeDir is not supported here.
func (SubPathWalk) MakeDir(string, string, fs.FileMode) error { return errors.ErrUnsupported }
