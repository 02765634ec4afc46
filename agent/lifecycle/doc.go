// Package lifecycle has the parts of a node agent that belong to the life of pods and of the
// machine: the order in which pods start, how long it takes, their mirrors in a cluster, the shutdown
// of the machine, and its setup. Each part is a [part.Part] of its own: an agent without one has
// neither its behavior nor its weight.
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
//   - [Tokens]: tokens of pods that are gone
//   - [Shutdown]: pods that end in order when the machine goes down
//   - [HostSetup]: kernel parameters, the agent's OOM score, firewall chains
//
// Tier: beta.
package lifecycle
