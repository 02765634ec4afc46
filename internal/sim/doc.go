// Package sim runs a complete agent through hours and days of simulated time, within
// the duration of a test. It has only tests.
//
// A schedule is plain text. Each line has a pause and the event after it:
//
//	+1s pod web api grace=30 s1=forever c=sleep,10m,exit,1
//	+2h agent kill-at 7
//	+0s power
//	+1m remove web
//
// verbs_test.go defines the verbs, newPod the attributes of pods. generate_test.go generates a
// schedule from a seed. testdata contains shortened schedules that found a bug once.
//
// # The machine
//
// The simulated machine outlives the processes of the agent. It has a container runtime in
// memory (cri/critest), an API server with ConfigMaps, Secrets and tokens, a device plugin,
// a DRA driver, a CSI driver with a controller that attaches its volumes
// (internal/csitest, over a connection in memory), a mount table, and a directory with the
// agent's files. Each process of the agent is a real agent.Agent with the parts of a node.
// All run in a bubble of testing/synctest, whose time stands still while a goroutine waits
// for the kernel.
//
// # Whole nodes
//
// For every sixteenth seed, and for the schedules in testdata/node, each process is a whole node
// (node_test.go): package nodeagent with all its parts, built from a KubeletConfiguration.
// nodeagent/cluster and the real client join it to an API server in memory
// (kubeapi/kubeapitest), with watches, events, leases, mirror pods, tokens, and the files for a
// start without the API server. Static pods are files. Parts that would wait for the kernel are
// replaced through options that embedders have, too: manifests and logs are polled, the test
// registers plugins, mounts go to a table, and the test provides the hardware, notifications of
// memory pressure, the kernel's log and the usage figures for evictions. Changing requests to
// the API server also pass the gate.
//
// More verbs exist for whole nodes: "uses" sets a pod's usage of memory or disk; "oom" kills a
// process as the kernel does; "shutdown" begins or cancels a shutdown of the machine. The API
// server hangs, is slow, fails, returns 429 or conflicts; its watches are cut, silent or too
// old; the Node is deleted. In half of the schedules many pods request devices or CPUs. In a
// sixth some pods have volumes of a CSI driver, which a controller attaches (csinode_test.go).
//
// # The gate
//
// All effects of an agent pass a gate: calls of the runtime, changes of its files, mounts,
// statuses, allocations. The gate injects faults (an effect fails, hangs or loses its
// result), counts effects, and kills an agent before its Nth effect: the agent then has no
// further effects, and its supervisor starts another one.
//
// The files are real. internal/durable reports each change before it is made. After a
// simulated power failure, a file with an unsynced change is in one of the states that a
// disk may leave: the old file, the new one, or an empty one. Files below a tmpfs of the
// mount table are lost.
//
// # What must hold
//
// The checks (judge_test.go) run right before an effect. They use the runtime's internal state,
// since faults may make its responses wrong:
//
//   - No container starts beside another instance of it, after its final end, against its
//     restart policy, or for a pod that is not wanted.
//   - No running container is stopped without a cause or before the end of its grace period.
//   - Restart counts never decrease, and each new instance of a container has a new count. A pod
//     becomes terminal only when no container of it runs or is shown as running. It is deleted
//     only when it has no containers, volumes or allocations.
//   - Published readiness changes only because of a probe result, and in time. A container is
//     stopped because of its probes exactly when their failure threshold is reached.
//   - No device and no CPU has two owners. A pod has as many as it requests. No container runs
//     without its prepared claim. No unused claim stays prepared. A deleted pod has no devices,
//     CPUs or claims.
//   - A running pod has its volumes, their files follow changed objects, and its tokens are valid.
//     No file that survives a power failure contains a secret. The directory of a synced file is
//     synced.
//   - A CSI driver gets no call that its specification forbids, such as a call for a volume that is
//     attached elsewhere or in use. No unwanted volume stays staged, published or mounted.
//   - The agent has at most busyBound effects in a minute.
//   - A resized pod has the memory that it requests.
//   - A pod without faults of its own runs within startBound after the last fault that concerns
//     all pods.
//   - After the last fault, the machine reaches the wanted state within convergeBound. Then
//     removed pods have left nothing, and the agent has no effects for restFor.
//
// For whole nodes also:
//
//   - The lease is never older than its duration, unless a fault prevents the renewal.
//   - The Node is ready at rest, and a start of the agent does not make a ready Node unready.
//   - Each static pod has one mirror pod, with the pod's current version and phase. The mirror pod
//     is removed with the static pod. Pods are deleted by UID.
//   - A terminal phase never changes.
//   - A pod is evicted only under pressure, and not before a pod that exceeds its request by more.
//     A pod is preempted only for a critical pod that needs its resources. At rest the node has no
//     pressure conditions.
//   - Under pressure, the node admits exactly the pods that the eviction rules allow.
//   - A pod that is published as terminal, or deleted, has no device, CPU or claim in the node's
//     responses to monitoring clients. A pod is rejected for lack of devices, CPUs or claims only
//     if other pods may have them.
//   - Pods with user namespaces share no IDs.
//   - No image of an existing container is removed. Unused images are removed before a pod is
//     evicted for disk pressure. The last exited instance of each container is kept.
//   - A container that the kernel killed for memory is reported as OOMKilled, with an event unless
//     a fault prevents it.
//   - At a shutdown, pods get their grace periods within the time of their priority group, pods of
//     high priority are stopped last, and no pod runs at the end. Static pods run again after the
//     boot.
//   - At rest the agent only sends leases and node statuses at their intervals, requests tokens,
//     and makes a limited number of reads.
//
// # Runs
//
//	go test ./internal/sim                                   # 100 schedules of hours, 15 with -race; make test runs 300 more
//	go test ./internal/sim -run TestSeeds -seeds 100 -node   # of whole nodes alone, which take three times as long
//	go test ./internal/sim -run TestSeeds -seeds 10000       # takes a night
//	go test ./internal/sim -run TestSeeds -seeds 1 -seed 45  # repeats one seed
//	go test ./internal/sim -run TestReplay -v -replays 20    # measures how deterministic seeds are
//	go test ./internal/sim -run TestWeek -weeks 3 -v         # measures the cost of a week with 20 pods
//	go test ./internal/sim -run TestRecord -v -record FILE   # the decisions of a recorded node, from agent record export
//	go test ./internal/sim -run TestRecord -record FILE -save NAME # keeps them in testdata/records
//	make clocks                                              # on a machine whose wall clock jumps
//
// A failing schedule is shortened and then printed. Goroutines of a bubble run in any order, so a
// seed does not always give the same effects (TestReplay). It may take several runs to reproduce a
// failure.
//
// TestWeek prints the CPU time, allocations and effects of a week with 20 pods, in the format of
// go test -bench.
//
// # Which faults it finds
//
// The table lists bugs that were put into the code on purpose to test the checks, and how many of
// the schedules 1 to 200 found each bug:
//
//	directories are not synced                                              198
//	a grace period is a third of what it should be                          188
//	volumes stay mounted at a pod's end                                     175
//	restart counts start again with each agent                              155
//	containers start again with policy Never                                142
//	secrets are on the disk                                                 132
//	devices are not released at a pod's end                                  69
//	files are not synced before they are renamed                             32
//	CPUs are not released at a pod's end                                     24
//	a readiness result is not published                                      19
//	a probe fails at its first failure                                       14
//	changed objects do not reach the pod                                      4
//	a failed StopContainer counts as a success                                2
//
// Schedules in testdata find rarer bugs: each was added with the fix of a bug. Test a new check or
// fix in the same way: put the bug into the code, and make sure that a schedule fails.
//
// # What is left out
//
//   - The node API, plugin sockets and cgroups: they need sockets, TLS and the kernel, and a bubble's
//     time stands still in such calls. Block devices, and other kinds of volumes than those above.
//   - Failing or hanging reads of a disk; only changes fail or hang. Writes of volume content, of
//     manifests and of the API server's store do neither.
//   - Restart counts of static pods at a start without the API server: only the mirror has them.
//   - The registration of a deleted Node before the next start of its agent.
//   - Jumps of the agent's wall clock, except with make clocks. The runtime's clock jumps by years.
//
// While a goroutine waits for a mutex, the time of a bubble stands still, even if the holder of
// the mutex waits for a timer. Therefore locks that are held during disk calls are channels.
package sim
