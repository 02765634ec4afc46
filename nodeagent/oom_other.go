//go:build !linux

package nodeagent

import (
	"github.com/nodewright/nodewright/node/oom"
)

// oomCounters returns nil: there are no cgroups.
func oomCounters(string) oom.Fallback { return nil }
