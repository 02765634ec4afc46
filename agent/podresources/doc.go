// Package podresources serves the kubelet's podresources API for a node agent:
// which pods have which devices, CPUs and memory. It is a [part.Part] around the
// server of devicemgr/podresources, and adds which pods there are.
//
//	p, err := podresources.New(podresources.Config{
//		Socket:  "/var/lib/kubelet/pod-resources/kubelet.sock",
//		Devices: devices,                         // a *devicemgr.Manager
//		CPUs:    placed.CPUs(),                   // of a *placement.Part
//		Memory:  placed.Memory(),
//	})
//
// It has the hooks Joiner and Runner. Its order among the parts does not matter.
//
// # Which pods
//
// Those that were admitted and have not come to their end, and those that run and
// have not been adopted yet. Clients take a pod that is not listed for one that
// has nothing, so calls wait until every source has spoken; after a minute they are
// answered with what is known. The socket is there from the beginning.
//
// # Ownership and faults
//
// New has no side effects. Run owns the socket, and returns when no call is under
// way. A socket that cannot be made is tried again for as long as Run runs.
// Answers are made of what is in memory.
//
// Tier: beta.
package podresources
