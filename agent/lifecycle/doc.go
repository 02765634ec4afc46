// Package lifecycle has the parts of a node agent for the start and the end of pods and of the
// machine: the order in which pods start, metrics of starts, mirror pods in a cluster, the shutdown
// of the machine, and its setup. Each is a [part.Part] of its own: an agent that leaves one out
// does not link its code.
//
//	order, err := lifecycle.NewStartOrder(lifecycle.StartOrderConfig{Log: log})
//	shutdown, err := lifecycle.NewShutdown(lifecycle.ShutdownConfig{...})
//	a, err := agent.New(agent.Config{Parts: []part.Part{order, shutdown}, ...})
//
// The parts:
//
//   - [StartOrder]: pods that start after others
//   - [PodStarts]: metrics of starts
//   - [Mirrors]: mirrors of static pods in a cluster
//   - [Tokens]: deletes the tokens of pods that are gone
//   - [Shutdown]: ends pods in order when the machine shuts down
//   - [HostSetup]: kernel parameters, the agent's OOM score, firewall chains
//
// Tier: beta.
package lifecycle
