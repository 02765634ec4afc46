// Package nodewright is the root of a library of node-agent building blocks: a kubelet
// as packages, each usable alone. It has no code of its own; this is the map.
//
// # A whole node
//
// [nodeagent] runs a node of a KubeletConfiguration, [nodeagent/cluster] connects it
// to an API server, and [nodeagent/localcri] makes it its own container runtime.
// [kubeletconfig] reads the kubelet's file and flags.
//
// # An agent of your own
//
// [agent] runs pods from any source; what one node does and another does without is a
// part of it ([agent/part]); ours are in [agent/resources], [agent/pressure], [agent/lifecycle]
// and [agent/csi]. [agent/agenttest] tests agents and parts.
//
// # Single blocks
//
//   - Meaning: [podspec] compiles a pod for a runtime, [podstatus] computes its status,
//     [podmeta] answers questions about its fields, [podmgr] reads manifests, [bundle]
//     takes them from a registry as one artifact.
//   - Lifecycle: [podworker] and [podworker/serial] serialize work by pod or by any key,
//     [podruntime] plans and executes the next step, [pleg] sees changes.
//   - Runtimes: [cri] is a client, [localcri] a runtime in the process, [images] pulls.
//   - Health: [probe], with checks and schedules that work without pods.
//   - Resources: [fit] answers whether a pod would fit, of [topology], [cpumgr] and
//     [memmgr]; [devicemgr], [dra] and [pluginmgr] speak with plugins; [devicemgr/hostdevices]
//     offers devices without one; [cgroups] limits.
//   - Storage and network: [volumemgr], [csi], [network].
//   - The node: [eviction], [gc], and [node]: status, usage, OOM kills, shutdown.
//   - A cluster: [kubeapi] and [kubeapi/podsync], and [server], the kubelet's HTTPS API.
//   - State: [checkpoint] keeps small values over crashes, [statusmgr] publishes statuses.
//
// Guides, operations and decisions are in the repository's docs directory.
//
// [nodeagent]: https://pkg.go.dev/github.com/nodewright/nodewright/nodeagent
// [nodeagent/cluster]: https://pkg.go.dev/github.com/nodewright/nodewright/nodeagent/cluster
// [nodeagent/localcri]: https://pkg.go.dev/github.com/nodewright/nodewright/nodeagent/localcri
// [kubeletconfig]: https://pkg.go.dev/github.com/nodewright/nodewright/kubeletconfig
// [agent]: https://pkg.go.dev/github.com/nodewright/nodewright/agent
// [agent/part]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/part
// [agent/resources]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/resources
// [agent/pressure]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/pressure
// [agent/lifecycle]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/lifecycle
// [agent/csi]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/csi
// [agent/agenttest]: https://pkg.go.dev/github.com/nodewright/nodewright/agent/agenttest
// [podspec]: https://pkg.go.dev/github.com/nodewright/nodewright/podspec
// [podstatus]: https://pkg.go.dev/github.com/nodewright/nodewright/podstatus
// [podmeta]: https://pkg.go.dev/github.com/nodewright/nodewright/podmeta
// [podmgr]: https://pkg.go.dev/github.com/nodewright/nodewright/podmgr
// [bundle]: https://pkg.go.dev/github.com/nodewright/nodewright/bundle
// [podworker]: https://pkg.go.dev/github.com/nodewright/nodewright/podworker
// [podworker/serial]: https://pkg.go.dev/github.com/nodewright/nodewright/podworker/serial
// [podruntime]: https://pkg.go.dev/github.com/nodewright/nodewright/podruntime
// [pleg]: https://pkg.go.dev/github.com/nodewright/nodewright/pleg
// [cri]: https://pkg.go.dev/github.com/nodewright/nodewright/cri
// [localcri]: https://pkg.go.dev/github.com/nodewright/nodewright/localcri
// [images]: https://pkg.go.dev/github.com/nodewright/nodewright/images
// [probe]: https://pkg.go.dev/github.com/nodewright/nodewright/probe
// [fit]: https://pkg.go.dev/github.com/nodewright/nodewright/fit
// [topology]: https://pkg.go.dev/github.com/nodewright/nodewright/topology
// [cpumgr]: https://pkg.go.dev/github.com/nodewright/nodewright/cpumgr
// [memmgr]: https://pkg.go.dev/github.com/nodewright/nodewright/memmgr
// [devicemgr]: https://pkg.go.dev/github.com/nodewright/nodewright/devicemgr
// [devicemgr/hostdevices]: https://pkg.go.dev/github.com/nodewright/nodewright/devicemgr/hostdevices
// [dra]: https://pkg.go.dev/github.com/nodewright/nodewright/dra
// [pluginmgr]: https://pkg.go.dev/github.com/nodewright/nodewright/pluginmgr
// [cgroups]: https://pkg.go.dev/github.com/nodewright/nodewright/cgroups
// [volumemgr]: https://pkg.go.dev/github.com/nodewright/nodewright/volumemgr
// [csi]: https://pkg.go.dev/github.com/nodewright/nodewright/csi
// [network]: https://pkg.go.dev/github.com/nodewright/nodewright/network
// [eviction]: https://pkg.go.dev/github.com/nodewright/nodewright/eviction
// [gc]: https://pkg.go.dev/github.com/nodewright/nodewright/gc
// [node]: https://pkg.go.dev/github.com/nodewright/nodewright/node
// [kubeapi]: https://pkg.go.dev/github.com/nodewright/nodewright/kubeapi
// [kubeapi/podsync]: https://pkg.go.dev/github.com/nodewright/nodewright/kubeapi/podsync
// [server]: https://pkg.go.dev/github.com/nodewright/nodewright/server
// [checkpoint]: https://pkg.go.dev/github.com/nodewright/nodewright/checkpoint
// [statusmgr]: https://pkg.go.dev/github.com/nodewright/nodewright/statusmgr
package nodewright
