package nodeagent

import "github.com/nodewright/nodewright/node"

// oomCounters are those of cgroup v2 below the cgroup of all pods.
func oomCounters(root string) node.OOMFallback { return node.NewOOMCounters("/sys/fs/cgroup", root) }
