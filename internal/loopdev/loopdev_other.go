//go:build !linux

package loopdev

import "errors"

// Attach is not supported here.
func Attach(string, bool) (string, error) { return "", errors.ErrUnsupported }

// Of is not supported here.
func Of(string) ([]string, error) { return nil, errors.ErrUnsupported }

// Named is not supported here.
func Named(string) ([]string, error) { return nil, errors.ErrUnsupported }

// Grow is not supported here.
func Grow(string) error { return errors.ErrUnsupported }

// Free is not supported here.
func Free(string) error { return errors.ErrUnsupported }
