// Package inprocess puts a whole container runtime into a program: package localcri
// with images, a network, streams and CDI devices, made of one Config. Nothing but
// runc or crun has to be on the machine.
//
//	rt, err := inprocess.New(ctx, inprocess.Config{RootDir: "/var/lib/edge/localcri", Program: monitor})
//	go rt.Run(ctx)
//	a, err := agent.New(agent.Config{Runtime: rt.Runtime(), Images: agent.Images{Service: rt.Images()}, ...})
//
// Who wants other parts (a network or a store of images of his own) uses package
// localcri itself.
//
// Containers outlive the program, and its end; [Reset] ends them and takes back
// everything that was made.
//
// # Network
//
// Pods get their addresses by the CNI plugins of the machine, if it has a
// configuration for them or is one of a cluster, and otherwise by the bridge of
// package network/bridge. Config.Network decides otherwise. The node's network is on
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
// Config.RootDir has images, records and writable layers. What does not outlast a
// reboot is in /run/nodewright, and for another root directory than the default in
// /run/nodewright-HASH: two runtimes with directories of their own do not meet.
//
// Tier: beta.
package inprocess
