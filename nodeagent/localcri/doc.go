// Package localcri adds a container runtime in the agent's process to a node of
// package nodeagent: the machine needs only runc or crun. It is separate, so that a
// node with another runtime does not link it.
//
//	n, err := nodeagent.New(ctx, nodeagent.Options{
//		LocalRuntime: localcri.Runtime(localcri.InProcessConfig{}),
//		...
//	})
//
// The runtime comes from package localcri, below the node's root directory.
//
// Tier: beta.
package localcri
