// Package resources has the parts of a node agent that give pods resources of the machine:
// exclusive CPUs and memory, devices, claims, swap and user IDs. Each is a [part.Part] of its
// own: an agent that leaves one out does not link its code.
//
//	devices, err := resources.NewDevices(resources.DevicesConfig{Manager: manager, Log: log})
//	placement, err := resources.NewPlacement(resources.PlacementConfig{...})
//	a, err := agent.New(agent.Config{Parts: []part.Part{devices, placement}, ...})
//
// The parts:
//
//   - [Placement]: exclusive CPUs and memory of containers
//   - [Devices]: devices of device plugins
//   - [Claims]: devices of ResourceClaims
//   - [Resize]: changes the resources of running pods in place
//   - [Swap]: limits of swap for containers
//   - [UserNamespaces]: user IDs of pods with a user namespace
//   - [Plugins]: the sockets of plugins
//   - [PodResources]: the podresources API
//
// Tier: beta.
package resources
