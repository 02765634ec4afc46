// Package network sets up network namespaces with addresses and host ports for pods, and
// tears each of them down exactly once, also after crashes.
//
//	n, err := network.New(network.Config{
//		Plugins:  []network.Plugin{plugin},
//		StateDir: "/var/lib/agent/network",
//	})
//	if err != nil {
//		return err
//	}
//	go n.Run(ctx)
//	result, err := n.Attach(ctx, network.Attachment{ID: sandbox, Namespace: "default", Name: "web", UID: uid})
//	...
//	err = n.Detach(ctx, sandbox)
//
// A [Plugin] implements the network: network/cni runs the machine's CNI plugins,
// network/bridge needs nothing installed, and network/networktest is the conformance suite
// for plugins of your own. In terms of the kubelet's old network plugins, Attach is SetUpPod,
// Detach is TearDownPod, and Get is GetPodNetworkStatus.
//
// # Order
//
// Attach makes a plan, records it, creates the namespace and calls the plugin, in this order,
// so that everything that exists is on record: after a crash, the next Run tears down
// unfinished attachments. Each ID has one operation at a time. Operations of different IDs
// run in parallel, 8 at a time. If the caller's context is cancelled, the caller stops
// waiting, but the operation goes on.
//
// Detach calls TearDown with the recorded configuration, not the current one. Then it
// unmounts the namespace and removes the record. A failed teardown is retried, and remains on
// record until it succeeds or [Network.Forget] is called.
//
// # Faults
//
// A plugin that hangs affects one pod: the call is abandoned after its deadline, and no other
// call is made for that ID until the abandoned one returns. Results of plugins are limited in
// size and validated. A panic is an error.
//
// A plugin's process may outlive a killed agent. Such a process still holds a lock, for
// which the next agent waits before it tears anything down; see [WriteGuard].
//
// A damaged record is renamed. Only its attachment is lost; this is logged, and
// [Network.List] shows it as [Damaged].
//
// On a disk that hangs, operations fail after [Config.DiskTimeout]. Get, List and Status do
// not use the disk.
//
// The next agent recognizes its namespaces by their names. If something else is at the path of a
// namespace, such as another mount, it is neither used nor removed.
//
// Tier: beta.
package network
