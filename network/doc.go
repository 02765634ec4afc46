// Package network gives pods network namespaces with addresses and host ports,
// and takes all of it back exactly once, whatever died in between.
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
// A [Plugin] makes the network: network/cni runs the machine's CNI plugins,
// network/bridge needs nothing installed, and a program may bring its own,
// which network/networktest tests. For readers of the kubelet's old network
// plugins: Attach is SetUpPod, Detach TearDownPod, Get GetPodNetworkStatus.
//
// # Order
//
// Attach plans, records, makes the namespace and has the plugin set it up, in
// this order, so that whatever exists is recorded: after a crash the next Run
// takes back what was not finished. Each ID has one operation at a time; those
// of different IDs run beside each other, 8 at a time. A caller's context ends
// its wait and nothing else.
//
// Detach gives TearDown what was recorded, and not what is configured by then.
// It unmounts the namespace and removes the record afterwards. What fails is
// tried again, and stays on record until it succeeds or [Network.Forget] gives
// it up.
//
// # Faults
//
// A plugin that hangs hurts its own pod: the call is left behind after its
// deadline, and no other one is made for the ID before it returns. What a plugin
// returns is bounded and checked. A panic is an error.
//
// A process of a plugin may outlive a killed agent. It holds a lock that the
// next agent waits for before it takes anything back; see [WriteGuard].
//
// A record that is damaged is set aside beside the others, and costs that
// one attachment, which is logged and listed as [Damaged].
//
// A disk that hangs fails what needs it, after [Config.DiskTimeout]. Get, List
// and Status do not need it.
//
// Namespaces have names by which the next agent knows its own. Whatever else is
// at such a path, as a mount of somebody else, is neither used nor removed.
//
// Tier: beta.
package network
