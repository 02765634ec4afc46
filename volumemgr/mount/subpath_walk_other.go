//go:build !linux

package mount

import (
	"errors"
	"io/fs"
	"os"
)

// SubPathWalk works only on Linux.
type SubPathWalk struct{ NoOpenat2 bool }

// Open returns errors.ErrUnsupported.
func (SubPathWalk) Open(string, string) (*os.File, error) { return nil, errors.ErrUnsupported }

// Resolve returns errors.ErrUnsupported.
func (SubPathWalk) Resolve(string, string) (string, string, error) {
	return "", "", errors.ErrUnsupported
}

// MakeDir returns errors.ErrUnsupported.
func (SubPathWalk) MakeDir(string, string, fs.FileMode) error { return errors.ErrUnsupported }
