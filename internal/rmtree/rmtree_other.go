//go:build !linux

package rmtree

import "errors"

func remove(string, bool) error { return errors.ErrUnsupported }
