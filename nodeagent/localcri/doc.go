// Package localcri gives a node of package nodeagent a container runtime in its own
// process: nothing but runc or crun has to be on the machine. It is apart from that
// package, so that a node on another runtime does not link it.
//
//	n, err := nodeagent.New(ctx, nodeagent.Options{
//		LocalRuntime: localcri.Runtime(localcri.Config{Program: monitor}),
//		...
//	})
//
// Containers outlive the agent, and its end; [Reset] ends them and takes back
// everything that was made.
//
// # Network
//
// Pods get their addresses by the CNI plugins of the machine, if it has a
// configuration for them or is one of a cluster, and otherwise by the bridge of
// package network/bridge. Config.Network decides otherwise. What a node has is on
// record, and is kept until Config.Network names another one; pods that have the
// former keep it.
//
// # Devices
//
// Containers get the devices of the Container Device Interface that device plugins
// and DRA drivers name, from the specifications in Config.CDIDirs. See package
// localcri/cdi for which files count.
//
// # Directories
//
// Below the node's root directory, localcri has images, records and writable layers.
// What does not outlast a reboot is in /run/nodewright, and for another root
// directory than the usual one in /run/nodewright-HASH: two agents with directories
// of their own do not meet.
package localcri
