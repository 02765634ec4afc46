//go:build !linux

package nodeagent

import "errors"

// peer is not supported: the runtime's cgroup stays unknown.
func peer(string) (int, error) { return 0, errors.ErrUnsupported }
