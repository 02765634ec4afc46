// Package hollow runs nodes without machines: the whole agent of package nodeagent,
// with a container runtime in memory and described hardware, for tests of
// schedulers, controllers and autoscalers. Thousands fit into a process.
//
//	n, err := hollow.New(ctx, hollow.Config{
//		Name: "hollow-0", Dir: dir, Kubeconfig: "/etc/kubernetes/admin.conf",
//		CPUs: 32, Memory: 128 << 30, NUMANodes: 2, Devices: map[string]int{"example.com/gpu": 8},
//	})
//	if err != nil {
//		return err
//	}
//	return n.Run(ctx)
//
// In its cluster it is a node like any other: it registers with its labels, taints,
// capacity and conditions, renews its lease, admits pods by their resources, places
// them on its NUMA nodes, assigns devices, reports statuses and events, evicts pods
// when they use more than the node has, and terminates them gracefully. It does not
// run anything: images are not downloaded, containers have no processes, logs or
// exec, volumes are empty, and every probe and hook succeeds. On the machine below
// it only writes files in Config.Dir.
//
// # Pods
//
// A container runs until it is terminated, whatever its command, unless an
// annotation of its pod says otherwise:
//
//	hollow.nodewright.dev/script: "sleep 30s exit 1"  what its containers do; see package critest
//	hollow.nodewright.dev/memory: 2Gi                 the memory usage of each container
//
// # Faults
//
// Config.Latency and Config.FailureRate make the runtime slow and unreliable, and
// [Node.Runtime] has more faults: it can hang, return wrong data, fail and recover.
//
// # Ownership
//
// A node stores its records in Config.Dir, like every node: after a restart of the
// process, it finds its records and no containers, like after a boot of the
// machine. The node's API, which exec, logs and metrics need, is not served.
//
// Tier: kit.
package hollow
