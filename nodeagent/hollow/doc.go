// Package hollow makes nodes without machines: the whole agent of package nodeagent,
// over a container runtime in memory and hardware that is only described, for tests of
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
// To its cluster it is a node as any other: it registers with its labels, taints,
// capacity and conditions, renews its lease, admits pods by its resources, places them
// on its NUMA nodes, gives them devices, reports their statuses and events, evicts them
// when they use more than it has, and lets them end gracefully. What it does not do is
// run anything: images are pulled from nowhere, containers have no processes, logs or
// exec, volumes hold nothing, and every probe and hook succeeds. Nothing of the machine below is changed beside files
// in Config.Dir.
//
// # Pods
//
// A container runs until it is told to end, whatever its command is, unless an
// annotation of its pod says otherwise:
//
//	hollow.nodewright.dev/script: "sleep 30s exit 1"  what its containers do; see package critest
//	hollow.nodewright.dev/memory: 2Gi                 what each of them uses
//
// # Faults
//
// Config.Latency and Config.FailureRate make the runtime slow and unreliable, and
// [Node.Runtime] has more faults: it can hang, lie, die and come back.
//
// # Ownership
//
// A node keeps its records in Config.Dir, as every node does: a second life of it,
// after a restart of the process, finds its records and no containers, as a machine
// that was booted. The node's API, which exec, logs and metrics need, is not served.
//
// Tier: kit.
package hollow
