// Package resources has the parts of a node agent that give pods what the machine has:
// CPUs and memory of their own, devices, claims, swap, user IDs. Each part is a [part.Part] of
// its own: an agent without one has neither its behavior nor its weight.
//
//	devices, err := resources.NewDevices(resources.DevicesConfig{Manager: manager, Log: log})
//	placement, err := resources.NewPlacement(resources.PlacementConfig{...})
//	a, err := agent.New(agent.Config{Parts: []part.Part{devices, placement}, ...})
//
// The parts:
//
//   - [Placement]: CPUs and memory of containers' own
//   - [Devices]: devices of device plugins
//   - [Claims]: devices of ResourceClaims
//   - [Resize]: other resources for pods that run
//   - [Swap]: the node's swap
//   - [UserNamespaces]: user IDs of pods with a user namespace
//   - [Plugins]: the sockets of plugins
//   - [PodResources]: the podresources API
//
// Tier: beta.
package resources
