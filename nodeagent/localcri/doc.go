// Package localcri gives a node of package nodeagent a container runtime in its own
// process: nothing but runc or crun has to be on the machine. It is apart from that
// package, so that a node on another runtime does not link it.
//
//	n, err := nodeagent.New(ctx, nodeagent.Options{
//		LocalRuntime: localcri.Runtime(localcri.InProcessConfig{}),
//		...
//	})
//
// The runtime is that of package localcri, below the node's root directory.
//
// Tier: beta.
package localcri
