//go:build !linux

package nodeagent

import "errors"

func peer(string) (int, error) { return 0, errors.ErrUnsupported }
