package nodeagent

import (
	"github.com/nodewright/nodewright/node/oom"
)

// oomCounters returns the counters of cgroup v2 below the cgroup of all pods.
func oomCounters(root string) oom.Fallback { return oom.NewCounters("/sys/fs/cgroup", root) }
