//go:build !linux

package nodeagent

import (
	"errors"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// RaiseLimits is for Linux alone. Without the field it is no error.
func RaiseLimits(c *kubeletconfig.Config) error {
	if c.MaxOpenFiles <= 0 {
		return nil
	}
	return errors.New("maxOpenFiles: files are limited on Linux alone")
}
