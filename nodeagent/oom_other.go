//go:build !linux

package nodeagent

import "github.com/nodewright/nodewright/node"

// oomCounters returns nil: there are no cgroups to count in.
func oomCounters(string) node.OOMFallback { return nil }
