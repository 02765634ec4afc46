//go:build !linux

package nodeagent

import (
	"errors"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// RaiseLimits works only on Linux. Without the field it returns nil.
func RaiseLimits(c *kubeletconfig.Config) error {
	if c.MaxOpenFiles <= 0 {
		return nil
	}
	return errors.New("maxOpenFiles is supported on Linux only")
}
