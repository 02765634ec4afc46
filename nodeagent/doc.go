// Package nodeagent builds a running node from a configuration: the agent with its
// parts, the cgroups of pods, the node's API over HTTPS, and what connects it to a
// cluster.
//
//	conf, warnings, err := kubeletconfig.Load(kubeletconfig.Options{File: "/etc/kubelet.yaml"})
//	...
//	n, err := nodeagent.New(ctx, nodeagent.Options{
//		Config:   conf,
//		Parts:    nodeagent.Standard(),
//		Services: nodeagent.StandardServices(),
//		Join:     cluster.Join, // of package nodeagent/cluster; nil for a node that stands alone
//		Log:      log,
//		Metrics:  registry,
//	})
//	if err != nil {
//		return err
//	}
//	return n.Run(ctx)
//
// # Choosing
//
// Parts and services are given by their makers, functions of this package. What a
// program does not name is not linked: a node that lists [Stats] and [OOM] has no
// code of device plugins. [Standard] and [StandardServices] name them all, and
// [StandardWithout] leaves some out. [With] is the maker of a part of one's own:
//
//	Parts: append(nodeagent.StandardWithout("mirrors", "tokens"), nodeagent.With(licence))
//
// A maker of one's own gets the [Builder], and may let others know what its part
// knows:
//
//	func ownFigures(b *nodeagent.Builder) (part.Part, error) {
//		p, err := figures.New(b.Node.Name)
//		b.Facts.EvictionStats = p // for nodeagent.Eviction, after it in the list
//		return p, err
//	}
//
// Options.Agent may change the agent's configuration. Whoever wants less than a
// node takes package agent, or single blocks.
//
// # Order
//
// [New] locks the node's directories, and then makes, in this order: the
// description of the machine and the client of the runtime; what connects to the
// cluster; the cgroups of pods; the parts, in the order of their list; the agent;
// the services. Each gets what was made before it by its [Builder]. What one has
// to ask of others that are made later, such as the cluster about the pressure on
// the node, it asks [Facts]: it is complete from the beginning, and answers for a
// node of which nothing is known until a part says more.
//
// # Ownership
//
// The root directory and, in a cluster, that of its certificates belong to one node
// at a time: New takes their locks before anything in them is opened, and the end of
// Run, or [Node.Close], gives them back after all else has ended. An embedder that
// opens files of its own there does so between the two, or takes the locks itself
// for package agent: see machine.LockDirs.
//
// New looks at the machine, asks the runtime for its cgroup driver for two seconds at
// most, and, on the machine's own hardware, getsubids(1), where it is there, for the IDs of
// pods, for ten at most; it
// moves no process and starts nothing. [Node.Run] owns every
// goroutine, and closes the client of the runtime that New has made. It stops no
// container.
//
// # Without the kernel
//
// A node of described hardware (Options.Hardware) with Settings.LeaveHost, PollFiles and
// NoPluginSockets, a mounter of its own (agent.VolumeConfig) and a runtime in memory waits
// for nothing but time: it lives in a bubble of testing/synctest, without services, and
// joined to a cluster by cluster.Through and kubeapitest.
//
// # As the kubelet
//
// The node presents itself as [KubernetesVersion], which the linker or
// Options.KubernetesVersion sets. [LogConfig] and package nodeagent/logs write logs
// as Kubernetes' components do, and [RaiseLimits] is for the program. Without a
// cluster the node's API is served over HTTPS to whom certificates or anonymous access
// let in; see [NodeAPI]. Differences from the kubelet are listed in
// docs/kubelet-differences.md.
//
// # Faults
//
// A service that fails is logged, and the others go on: the pods matter more. An
// error with which the agent or a part ends is the error of Run.
//
// Tier: beta.
package nodeagent
