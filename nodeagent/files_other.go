//go:build !linux

package nodeagent

import (
	"errors"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// RaiseLimits returns an error if the configuration has maxOpenFiles, since it works only on
// Linux.
func RaiseLimits(c *kubeletconfig.Config) error {
	if c.MaxOpenFiles <= 0 {
		return nil
	}
	return errors.New("maxOpenFiles is supported on Linux only")
}
