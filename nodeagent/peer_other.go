//go:build !linux

package nodeagent

import "errors"

// peer returns an error, since it works only on Linux. The runtime's cgroup stays unknown.
func peer(string) (int, error) { return 0, errors.ErrUnsupported }
