//go:build !linux

package nodeagent

import "github.com/nodewright/nodewright/node/oom"

func oomCounters(string) oom.Fallback { return nil }
