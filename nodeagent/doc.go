// Package nodeagent builds a running node from a configuration: the agent with its
// parts, the cgroups of pods, the node's API over HTTPS, and the connection to a
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
// Parts and services are listed by their constructors, which are functions of this package.
// A program links only those that it names: the program of a node that has only [Stats] and
// [OOM] contains no code for device plugins. [Standard] and [StandardServices] return all
// of them, [StandardWithout] all but some. [With] adds a part of your own:
//
//	Parts: append(nodeagent.StandardWithout("mirrors", "tokens"), nodeagent.With(licence))
//
// Your own constructor receives the [Builder], and can offer its part to the others:
//
//	func ownFigures(b *nodeagent.Builder) (part.Part, error) {
//		p, err := figures.New(b.Node.Name)
//		b.Facts.EvictionStats.Give(p) // for nodeagent.Eviction, after it in the list
//		return p, err
//	}
//
// Options.Agent can change the configuration of the agent. For less than a whole node, use
// package agent or single blocks.
//
// # Order
//
// [New] locks the node's directories and then creates, in this order: the description of
// the machine and the client of the runtime; the connection to the cluster; the cgroups of
// pods; the parts, in the order of their list; the agent; the services. Each of them finds
// the earlier ones in the [Builder]. Information from later ones, such as the pressure
// conditions that the cluster publishes, comes from [Facts], which is usable from the
// beginning and returns neutral answers until a part provides its own. A value that a
// constructor needs at once is a [Fact]: New returns an error that names both if the part
// which gives it comes later.
//
// # Ownership
//
// The root directory and, in a cluster, the directory of certificates belong to one node at
// a time: New locks them before it opens any file in them, and the end of Run, or
// [Node.Close], unlocks them last. An embedder that keeps files of its own there opens them
// between the two, or takes the locks itself for package agent: see node.LockDirs.
//
// Agents on one machine also share resources outside of their directories, such as
// the directory of pod logs or the cgroup of pods. They belong to the first agent:
// Run of another one returns an error, with the settings to change
// (Settings.ClaimsDir).
//
// New inspects the machine, asks the runtime for its cgroup driver (two seconds at most),
// and, on the machine's own hardware, getsubids(1), where installed, for the user IDs of pods
// (ten seconds at most). It moves no process and starts none that outlives it. [Node.Run]
// starts all goroutines, and closes the runtime client that New created. It stops no
// container.
//
// # Without the kernel
//
// A node with described hardware (Options.Hardware), Settings.LeaveHost, PollFiles
// and NoPluginSockets, a mounter of its own (agent.VolumeConfig) and a runtime in
// memory waits for nothing but time: it runs within testing/synctest, without
// services, and joined to a cluster by cluster.Through and kubeapitest.
//
// # Compatibility
//
// The node reports [KubernetesVersion], which the linker or
// Options.KubernetesVersion sets. [LogConfig] and [NewLogger] write logs like
// Kubernetes' components, and [RaiseLimits] is for the program. Without a cluster
// the node's API is served over HTTPS to clients with a certificate, or to all with
// anonymous access; see [NodeAPI]. internal/differences/differences.md lists the
// differences from the kubelet.
//
// # Faults
//
// If a service fails, the error is logged and everything else continues, since the pods
// are more important. If the agent or a part returns an error, so does Run.
//
// # Logs
//
// [NewLogger] writes the entries of a zap.Logger in the format of Kubernetes'
// components, so that their log collectors can parse them:
//
//	I1122 23:40:05.123456    1234 node.go:42] "agent runs" logger="agent" socket="/run/agent.sock"
//	{"ts":1763854805123.456,"caller":"nodeagent/node.go:42","msg":"agent runs","logger":"agent","v":0,"socket":"/run/agent.sock"}
//
// [NewLogger] creates a Logger from the settings of a KubeletConfiguration;
// [TextEncoder], [TerminalEncoder] and [JSONEncoder] are encoders for another zapcore.Core. [FromSlog]
// is for programs that log with log/slog.
//
// # Logs: verbosity
//
// The agent's entries have two levels: klog's 0 for normal ones, and klog's 4 ([DebugFrom]) for
// debugging, which a verbosity of 4 and above shows; VModule shows the debugging entries of single
// files.
//
// # Logs: differences
//
// In text every string is quoted, so that texts of a pod or a runtime are always on
// one line; klog writes a string of several lines unquoted. An error is err="..."
// in both.
//
// Tier: stable.
package nodeagent
